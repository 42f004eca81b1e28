#include "engine/gradients.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/constants.hpp"
#include "plan/eviction.hpp"

namespace sluice::engine {
namespace {

/// Enough to keep a drive busy; each holds a frame that nothing else can use.
constexpr std::uint32_t kSpillsAtOnce = 4;

/// Contributions that reading back looks ahead: about as many reads keep a drive busy.
constexpr plan::Distance kLoadHorizon = 8;

/// What a contribution of zeros adds, one tile of the widest type.
alignas(64) constexpr std::array<std::byte, kernels::kTileElements * sizeof(float)> kZeros{};

/// Adds one contribution's part to a plane, in tiles of whole granules, and its squares to the norm.
class AddTask final : public ComputeTask {
 public:
  AddTask(const Contribution& part, std::byte* plane, DType plane_dtype,
          std::function<void(const kernels::NormDelta&)> done)
      : part_(part), plane_(plane), plane_dtype_(plane_dtype), done_(std::move(done)), norms_(tiles()) {}

  std::uint32_t tiles() const override {
    return static_cast<std::uint32_t>((part_.count + kernels::kTileElements - 1) / kernels::kTileElements);
  }

  void run(std::uint32_t tile) override {
    const std::size_t first = std::size_t{tile} * kernels::kTileElements;
    const std::size_t count = std::min<std::size_t>(kernels::kTileElements, part_.count - first);
    const std::size_t source_bytes = part_.dtype == kernels::GradientDType::kF32 ? 4 : 2;
    const std::byte* source = part_.source != nullptr
                                  ? static_cast<const std::byte*>(part_.source) + first * source_bytes
                                  : kZeros.data();
    std::byte* target = plane_ + (part_.offset + first) * dtype_bytes(plane_dtype_);
    if (plane_dtype_ == DType::kBF16)
      kernels::store_bf16(reinterpret_cast<std::uint16_t*>(target), source, part_.dtype, count,
                          &norms_[tile]);
    else
      kernels::accumulate_f32(reinterpret_cast<float*>(target), source, part_.dtype, count, part_.accumulate,
                              &norms_[tile]);
  }

  void finish() override {
    for (const kernels::NormDelta& norm : norms_) total_.merge(norm);
  }

  void done() override {
    const auto done = std::move(done_);
    const kernels::NormDelta total = total_;
    delete this;
    done(total);
  }

 private:
  const Contribution part_;
  std::byte* const plane_;
  const DType plane_dtype_;
  std::function<void(const kernels::NormDelta&)> done_;
  std::vector<kernels::NormDelta> norms_;  // a tile each: exact, so their order does not matter
  kernels::NormDelta total_;
};

}  // namespace

Gradients::Gradients(State& state, Records& records, memory::FramePool& frames)
    : state_(state), records_(records), frames_(frames), planes_(state.chunks.size()) {
  for (std::uint32_t chunk = 0; chunk < planes_.size(); ++chunk)
    if (state.stepped(chunk)) ++stepped_chunks_;
}

PlaneView Gradients::view(std::uint32_t chunk) const {
  return {planes_[chunk].frame, state_.chunk_layout(chunk).elements,
          dtype_bytes(*state_.class_of(chunk).gradient)};
}

void Gradients::add(const Contribution& contribution, Done done) {
  const std::uint32_t chunk = contribution.chunk;
  if (pass_ != nullptr) pass_->access(chunk);
  if (!failure_.ok()) return done(failure_);
  ++under_way_;
  acquire(chunk, [this, contribution, done = std::move(done)](Status status, std::byte* plane) {
    if (!status.ok()) {
      --under_way_;
      done(std::move(status));
      return settle();
    }
    state_.compute->submit(
        *new AddTask(contribution, plane, *state_.class_of(contribution.chunk).gradient,
                     [this, chunk = contribution.chunk, done](const kernels::NormDelta& norm) {
                       norm_.merge(norm);
                       --under_way_;
                       release(chunk);
                       done({});
                       settle();
                     }));
  });
}

void Gradients::acquire(std::uint32_t chunk, Ready ready) {
  Plane& plane = planes_[chunk];
  plane.spare = false;
  if (plane.where == Where::kHeld) {
    ++plane.pins;
    return ready({}, plane.frame);
  }
  plane.waiting.push_back(std::move(ready));
  if (plane.where == Where::kLoading || plane.where == Where::kSpilling || plane.queued) return;
  plane.queued = true;
  queue_.push_back(chunk);
  pump();
}

void Gradients::release(std::uint32_t chunk, NextUse next_use) {
  --planes_[chunk].pins;
  planes_[chunk].spare = next_use == NextUse::kUnlikely;
  pump();
}

void Gradients::consume(std::uint32_t chunk) {
  --planes_[chunk].pins;
  forget(chunk);  // before anything looks for a plane to spill
  pump();
}

void Gradients::discard(std::uint32_t chunk) {
  if (planes_[chunk].where != Where::kHeld || planes_[chunk].pins > 0) return;
  forget(chunk);
  pump();
}

void Gradients::forget(std::uint32_t chunk) {
  Plane& plane = planes_[chunk];
  if (plane.frame != nullptr) {
    frames_.release(std::exchange(plane.frame, nullptr));
    std::erase(held_, chunk);
  }
  if (plane.where != Where::kNone) --present_;
  plane.where = Where::kNone;
  plane.replayed = false;
  plane.spare = false;
}

void Gradients::drop_all(Done done) {
  when_still_ = std::move(done);
  settle();
}

void Gradients::settle() {
  if (under_way_ > 0 || !when_still_) return;
  for (std::uint32_t chunk = 0; chunk < planes_.size(); ++chunk)
    if (planes_[chunk].where != Where::kNone) forget(chunk);
  norm_ = {};
  failure_ = {};
  std::exchange(when_still_, nullptr)({});
}

void Gradients::replay_spilled(std::uint32_t chunk) {
  planes_[chunk].where = Where::kSpilled;
  planes_[chunk].replayed = true;
  ++present_;
}

void Gradients::pump() {
  while (!queue_.empty()) {
    std::byte* frame = frames_.try_acquire();
    if (frame == nullptr) {
      while (spilling_ < std::min<std::size_t>(queue_.size(), kSpillsAtOnce) && spill_one()) {
      }
      return;
    }
    const std::uint32_t chunk = queue_.front();
    queue_.pop_front();
    Plane& plane = planes_[chunk];
    plane.queued = false;
    plane.frame = frame;
    if (plane.where == Where::kSpilled) {
      load(chunk, io::Priority::kDemand);
    } else {
      ++present_;
      plane.where = Where::kHeld;
      held_.push_back(chunk);
      serve(chunk);
    }
  }
  load_ahead();
  spill_ahead();
}

void Gradients::load(std::uint32_t chunk, io::Priority priority) {
  planes_[chunk].where = Where::kLoading;
  ++under_way_;
  records_.read_gradient(chunk, planes_[chunk].frame, priority, [this, chunk](Status status) {
    if (!status.ok()) {
      --under_way_;
      fail(chunk, status);
      return settle();
    }
    if (planes_[chunk].replayed) {
      --under_way_;
      planes_[chunk].where = Where::kHeld;
      held_.push_back(chunk);
      return serve(chunk);
    }
    hash_plane(*state_.compute, view(chunk), [this, chunk](std::uint64_t checksum) {
      --under_way_;
      if (checksum != planes_[chunk].checksum) {
        fail(chunk, checksum_mismatch(state_, chunk, "gradient"));
      } else {
        planes_[chunk].where = Where::kHeld;
        held_.push_back(chunk);
        serve(chunk);
      }
      settle();
    });
  });
}

void Gradients::serve(std::uint32_t chunk) {
  Plane& plane = planes_[chunk];
  const std::vector<Ready> waiting = std::exchange(plane.waiting, {});
  plane.pins += static_cast<std::uint32_t>(waiting.size());
  std::byte* const frame = plane.frame;
  for (const Ready& ready : waiting) ready({}, frame);
}

void Gradients::fail(std::uint32_t chunk, const Status& status) {
  if (failure_.ok()) failure_ = status;
  Plane& plane = planes_[chunk];
  std::erase(held_, chunk);
  plane.where = Where::kSpilled;  // what is there is not to be used: failure_ ends the step
  frames_.release(std::exchange(plane.frame, nullptr));
  for (const Ready& ready : std::exchange(plane.waiting, {})) ready(status, nullptr);
  pump();
}

std::optional<std::uint32_t> Gradients::choose_victim() const {
  std::vector<plan::Candidate> candidates;
  for (std::uint32_t chunk : held_) {
    if (planes_[chunk].where != Where::kHeld || planes_[chunk].pins > 0) continue;
    if (planes_[chunk].spare) return chunk;
    candidates.push_back({chunk, next_use(pass_, chunk)});
  }
  if (candidates.empty()) return std::nullopt;
  if (pass_ == nullptr || pass_->cursor.size() == 0)
    return candidates.front()
        .item;  // the oldest: backward passes seldom come back to it in the same micro-batch
  return plan::farthest(candidates);
}

bool Gradients::spill_one() {
  if (state_.partition.spilled_gradients == 0) return false;
  const std::optional<std::uint32_t> victim = choose_victim();
  if (!victim) return false;
  const std::uint32_t chunk = *victim;
  planes_[chunk].where = Where::kSpilling;
  ++spilling_;
  ++under_way_;
  hash_plane(*state_.compute, view(chunk), [this, chunk](std::uint64_t checksum) {
    planes_[chunk].checksum = checksum;
    records_.write_gradient(chunk, planes_[chunk].frame,
                            [this, chunk](Status status) { spill_done(chunk, std::move(status)); });
  });
  return true;
}

void Gradients::spill_done(std::uint32_t chunk, Status status) {
  --spilling_;
  --under_way_;
  if (!status.ok()) {
    fail(chunk, status);
    return settle();
  }
  Plane& plane = planes_[chunk];
  std::erase(held_, chunk);
  plane.where = Where::kSpilled;
  frames_.release(std::exchange(plane.frame, nullptr));
  if (!plane.waiting.empty() && !plane.queued) {
    plane.queued = true;
    queue_.push_back(chunk);
  }
  pump();
  settle();
}

void Gradients::spill_ahead() {
  // Frames that will be wanted soon are cleared while nobody waits: as many as may be written side by side,
  // and only when what has yet to come, for the first time or back from the drive, does not fit.
  const std::uint32_t reserve = std::max(1U, std::min(kSpillsAtOnce, frames_.frames() / 4));
  const bool comes_back = pass_ != nullptr && pass_->horizon() > 0;
  while (frames_.free_frames() + spilling_ < reserve) {
    const std::uint32_t to_come =
        stepped_chunks_ - (comes_back ? static_cast<std::uint32_t>(held_.size()) : present_);
    if (to_come <= frames_.free_frames() + spilling_ || !spill_one()) return;
  }
}

void Gradients::load_ahead() {
  if (pass_ == nullptr) return;
  const plan::Distance horizon = std::min<plan::Distance>(pass_->horizon(), kLoadHorizon);
  for (plan::Distance distance = 0; distance < horizon && frames_.free_frames() > 0; ++distance) {
    const std::uint32_t chunk = pass_->cursor.item_ahead(distance);
    Plane& plane = planes_[chunk];
    if (plane.where != Where::kSpilled || plane.queued || plane.replayed) continue;
    // Do no harm: the frame will be missed, so something needed later than this must be there to make up for it.
    const bool later = std::ranges::any_of(held_, [&](std::uint32_t held) {
      return planes_[held].pins == 0 && next_use(pass_, held) > distance;
    });
    if (!later) return;
    plane.frame = frames_.try_acquire();
    load(chunk, io::Priority::kReadAhead);
  }
}

}  // namespace sluice::engine
