#include "support/outage.hpp"

#include <algorithm>
#include <utility>

namespace sluice::sim {

bool Outage::has_struck() const {
  std::lock_guard lock(mutex_);
  return struck_;
}

void Outage::strike_all() {
  std::lock_guard lock(mutex_);
  for (OutageDrive* drive : drives_) drive->backend_.crash(options_.kind);
}

void Outage::count(std::uint32_t drive) {
  if (struck_ || (options_.hits == Hits::kOne && drive != options_.drive)) return;
  if (++requests_ != options_.request) return;
  struck_ = true;
  for (OutageDrive* hit : drives_)
    if (options_.hits == Hits::kAll || hit->index_ == drive) hit->backend_.crash(options_.kind);
  if (options_.meanwhile) options_.meanwhile();
}

OutageDrive::OutageDrive(Outage& outage, std::uint32_t index, std::uint64_t seed)
    : outage_(outage), index_(index), world_(seed) {
  std::lock_guard lock(outage_.mutex_);
  outage_.drives_.push_back(this);
}

OutageDrive::~OutageDrive() {
  std::lock_guard lock(outage_.mutex_);
  std::erase(outage_.drives_, this);
}

io::Request* OutageDrive::submit(io::Request* first) {
  std::lock_guard lock(outage_.mutex_);
  while (first != nullptr) {
    io::Request* const rest = std::exchange(first->next, nullptr);
    if (backend_.submit(first) != nullptr) {
      first->next = rest;
      return first;
    }
    first = rest;
    ++in_flight_;
    outage_.count(index_);
  }
  return nullptr;
}

io::Request* OutageDrive::reap() {
  std::lock_guard lock(outage_.mutex_);
  io::Request* const finished = backend_.reap();
  for (const io::Request* request = finished; request != nullptr; request = request->next) --in_flight_;
  return finished;
}

void OutageDrive::wait(std::int64_t deadline_ns, std::uint32_t events) {
  std::unique_lock lock(outage_.mutex_);
  if (in_flight_ == 0 && deadline_ns == io::kNoDeadline)
    changed_.wait(lock, [this] { return woken_; });
  else if (!woken_)
    backend_.wait(deadline_ns, events);
  woken_ = false;
}

void OutageDrive::wake() {
  {
    std::lock_guard lock(outage_.mutex_);
    woken_ = true;
  }
  changed_.notify_all();
}

}  // namespace sluice::sim
