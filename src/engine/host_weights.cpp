#include "engine/host_weights.hpp"

#include <algorithm>
#include <utility>

#include "plan/eviction.hpp"

namespace sluice::engine {

HostWeights::HostWeights(State& state, Records& records, Commits& commits, memory::FramePool& frames)
    : state_(state), records_(records), commits_(commits), frames_(frames), planes_(state.chunks.size()) {}

void HostWeights::acquire(std::uint32_t chunk, io::Priority priority, Ready ready) {
  if (std::byte* record = state_.chunks[chunk].resident) return ready({}, record);
  if (pass_ != nullptr) pass_->access(chunk);
  Plane& plane = planes_[chunk];
  if (plane.where == Where::kPresent) {
    ++plane.pins;
    return ready({}, plane.frame);
  }
  plane.waiting.push_back(std::move(ready));
  const bool demanded = priority == io::Priority::kDemand;
  if (plane.where == Where::kAbsent) {
    plane.where = Where::kQueued;
    (demanded ? demanded_ : ahead_).push_back(chunk);
  } else if (demanded) {
    expedite(chunk);
  }
  pump();
}

void HostWeights::expedite(std::uint32_t chunk) {
  if (planes_[chunk].where == Where::kQueued && std::erase(ahead_, chunk) > 0) demanded_.push_back(chunk);
}

void HostWeights::release(std::uint32_t chunk) {
  if (state_.chunks[chunk].resident != nullptr) return;
  --planes_[chunk].pins;
  pump();
}

void HostWeights::borrow(std::function<void(std::byte*)> ready) {
  borrowers_.push_back(std::move(ready));
  pump();
}

void HostWeights::give_back(std::byte* frame) {
  frames_.release(frame);
  pump();
}

void HostWeights::invalidate(std::uint32_t chunk) {
  Plane& plane = planes_[chunk];
  if (plane.where != Where::kPresent) return;
  plane.where = Where::kAbsent;
  std::erase(present_, chunk);
  frames_.release(std::exchange(plane.frame, nullptr));
}

std::byte* HostWeights::find_frame() {
  if (std::byte* frame = frames_.try_acquire()) return frame;
  std::vector<plan::Candidate> candidates;
  for (std::uint32_t chunk : present_)
    if (planes_[chunk].pins == 0) candidates.push_back({chunk, next_use(pass_, chunk)});
  const std::optional<std::uint32_t> victim = plan::farthest(candidates);
  if (!victim) return nullptr;
  invalidate(*victim);
  return frames_.try_acquire();
}

void HostWeights::pump() {
  while (!borrowers_.empty() || !demanded_.empty() || !ahead_.empty()) {
    std::byte* frame = find_frame();
    if (frame == nullptr) return;
    if (!borrowers_.empty()) {
      const auto ready = std::move(borrowers_.front());
      borrowers_.pop_front();
      ready(frame);
      continue;
    }
    std::deque<std::uint32_t>& queue = demanded_.empty() ? ahead_ : demanded_;
    const std::uint32_t chunk = queue.front();
    const io::Priority priority = demanded_.empty() ? io::Priority::kReadAhead : io::Priority::kDemand;
    queue.pop_front();
    load(chunk, frame, priority);
  }
}

void HostWeights::load(std::uint32_t chunk, std::byte* frame, io::Priority priority) {
  Plane& plane = planes_[chunk];
  plane.where = Where::kLoading;
  plane.frame = frame;
  records_.read(chunk, {0, 1}, frame, priority, [this, chunk](Status status) {
    if (!status.ok()) return loaded(chunk, std::move(status));
    hash_planes(state_, chunk, {0, 1}, planes_[chunk].frame, [this, chunk](const PlaneChecksums& checksums) {
      if (equal_planes({0, 1}, checksums, state_.chunks[chunk].checksums)) return loaded(chunk, {});
      commits_.find_copy(chunk, {0, 1}, planes_[chunk].frame, [this, chunk](const std::string& copy) {
        loaded(chunk, checksum_mismatch(state_, chunk, "weights", copy));
      });
    });
  });
}

void HostWeights::loaded(std::uint32_t chunk, Status status) {
  Plane& plane = planes_[chunk];
  const std::vector<Ready> waiting = std::exchange(plane.waiting, {});
  if (!status.ok()) {
    plane.where = Where::kAbsent;
    frames_.release(std::exchange(plane.frame, nullptr));
    for (const Ready& ready : waiting) ready(status, nullptr);
    return pump();
  }
  plane.where = Where::kPresent;
  present_.push_back(chunk);
  std::byte* const frame = plane.frame;
  plane.pins += static_cast<std::uint32_t>(waiting.size());
  for (const Ready& ready : waiting) ready({}, frame);
  pump();
}

}  // namespace sluice::engine
