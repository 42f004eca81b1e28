#include "side_by_side.hpp"

#include <algorithm>

#include "tools/nvme/throughput.hpp"

namespace sluice::bench {
namespace {

struct Figures {
  std::vector<double> seconds_a_byte;
  std::vector<double> cpu_a_byte;
  bool left_out = false;
};

}  // namespace

void run_side_by_side(benchmark::State& state, double request_bytes, std::vector<Side> sides) {
  std::vector<Figures> figures(sides.size());
  std::size_t round = 0;
  const auto take_turn = [&](std::size_t who, bool counted) {
    Figures& own = figures[who];
    if (own.left_out) return true;
    const auto moved = sides[who].turn();
    if (!moved.ok()) {
      own.left_out = true;
      if (who == 0) state.SkipWithError(moved.status().to_string().c_str());
      return who != 0;
    }
    if (!counted) return true;
    own.seconds_a_byte.push_back(moved->seconds / static_cast<double>(moved->bytes));
    own.cpu_a_byte.push_back(moved->cpu.all() / static_cast<double>(moved->bytes));
    if (who == 0) state.SetIterationTime(moved->seconds);
    return true;
  };
  for (std::size_t who = 0; who < sides.size(); ++who) {
    if (!take_turn(who, false)) return;  // warms up
  }
  for (auto _ : state) {
    for (std::size_t turn = 0; turn < sides.size(); ++turn) {
      if (!take_turn((turn + round) % sides.size(), true)) return;
    }
    ++round;
  }
  const Figures* fastest = nullptr;
  for (std::size_t who = 0; who < sides.size(); ++who) {
    const Figures& own = figures[who];
    if (own.left_out) continue;
    const double seconds = tools::median(own.seconds_a_byte);
    const double cpu = tools::median(own.cpu_a_byte);
    state.counters[sides[who].name + "_GiB_per_s"] = 1 / seconds / 0x1p30;
    state.counters[sides[who].name + "_ns"] = seconds * request_bytes * 1e9;
    state.counters[sides[who].name + "_cpu_ns"] = cpu * request_bytes * 1e9;
    if (who > 0 && (fastest == nullptr || seconds < tools::median(fastest->seconds_a_byte))) fastest = &own;
  }
  if (fastest == nullptr) return state.SkipWithError("nothing to compare with works here");
  state.counters["ratio"] = tools::median(fastest->seconds_a_byte) / tools::median(figures[0].seconds_a_byte);
  if (const double cpu = tools::median(fastest->cpu_a_byte); cpu > 0)
    state.counters["cpu_ratio"] = tools::median(figures[0].cpu_a_byte) / cpu;
}

}  // namespace sluice::bench
