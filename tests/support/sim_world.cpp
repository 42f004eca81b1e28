#include "support/sim_world.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace sluice::sim {

void SimWorld::post(std::function<void()> event, std::int64_t min_delay_ns) {
  events_.push_back({now_ns_ + min_delay_ns, std::move(event)});
}

bool SimWorld::step() {
  if (events_.empty()) return false;
  advance_to(next_due_ns());
  const auto due_end =
      std::partition(events_.begin(), events_.end(), [this](const Event& e) { return e.due_ns <= now_ns_; });
  const auto chosen = events_.begin() + static_cast<std::ptrdiff_t>(
                                            below(static_cast<std::uint64_t>(due_end - events_.begin())));
  std::swap(*chosen, events_.back());
  const std::function<void()> run = std::move(events_.back().run);
  events_.pop_back();
  run();
  return true;
}

void SimWorld::run_all() {
  while (step()) {
  }
}

void SimWorld::advance_to(std::int64_t time_ns) { now_ns_ = std::max(now_ns_, time_ns); }

std::int64_t SimWorld::next_due_ns() const {
  return std::min_element(events_.begin(), events_.end(),
                          [](const Event& a, const Event& b) { return a.due_ns < b.due_ns; })
      ->due_ns;
}

std::uint64_t SimWorld::below(std::uint64_t end) { return random_() % end; }

bool SimWorld::chance(double probability) {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53 < probability;
}

std::uint64_t seed_or(std::uint64_t usual) {
  const char* given = std::getenv("SLUICE_TEST_SEED");
  return given == nullptr ? usual : std::strtoull(given, nullptr, 0);
}

}  // namespace sluice::sim
