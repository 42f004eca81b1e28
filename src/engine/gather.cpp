#include "engine/gather.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "plan/eviction.hpp"

namespace sluice::engine {
namespace {

/// Accesses that read-ahead looks at; a bound on its cost, far beyond what any drive has in flight.
constexpr plan::Distance kHorizon = 256;

}  // namespace

Gather::Gather(State& state, HostWeights& weights, GatherOptions options)
    : state_(state),
      weights_(weights),
      options_(options),
      ranges_(state.device->arena().size()),
      entries_(state.registry.tensors().size()) {}

std::uint64_t Gather::range_bytes(const State& state, std::uint32_t tensor) {
  const std::uint64_t elements = state.registry.tensors()[tensor].elements;
  const std::uint32_t world = state.registry.group_of(tensor).world;
  // A shard is a multiple of 256 elements, so the product is on 256 bytes whatever the dtype.
  return store::shard_elements(elements, world) * world * dtype_bytes(state.registry.weight_dtype(tensor));
}

Status Gather::place_kept() {
  for (std::uint32_t tensor = 0; tensor < entries_.size(); ++tensor) {
    if (!state_.registry.tensors()[tensor].kept) continue;
    const std::optional<std::uint64_t> offset = ranges_.allocate(bytes_of(tensor));
    if (!offset)
      return Status(Code::kInternal,
                    "device memory for kept parameters is not there although it was counted");
    entries_[tensor].placed = true;
    entries_[tensor].offset = *offset;
    kept_.push_back(tensor);
  }
  return {};
}

std::byte* Gather::range(std::uint32_t tensor) {
  return state_.device->arena().data() + entries_[tensor].offset;
}

void Gather::pin(std::uint32_t tensor) {
  Entry& entry = entries_[tensor];
  if (entry.pins++ > 0) return;
  if (!state_.registry.tensors()[tensor].kept) pinned_bytes_ += bytes_of(tensor);
  if (entry.where == Where::kFilling) ahead_bytes_ -= bytes_of(tensor);
}

void Gather::unpin(std::uint32_t tensor) {
  Entry& entry = entries_[tensor];
  if (--entry.pins > 0) return;
  if (!state_.registry.tensors()[tensor].kept) {
    pinned_bytes_ -= bytes_of(tensor);
    entry.gathered = false;
  }
  if (entry.where == Where::kFilling) ahead_bytes_ += bytes_of(tensor);
}

void Gather::fetch(std::uint64_t pass, std::vector<std::uint32_t> tensors, Fetched done) {
  std::uint64_t more_bytes = 0;
  bool demand = false;
  for (std::uint32_t tensor : tensors) {
    const Entry& entry = entries_[tensor];
    if (pass_ != nullptr) pass_->access(tensor);
    demand = demand || entry.where == Where::kAbsent;
    if (entry.pins == 0 && !state_.registry.tensors()[tensor].kept) more_bytes += bytes_of(tensor);
  }
  ++state_.counters.fetches;
  if (demand) ++state_.counters.demand_fetches;
  if (more_bytes > options_.max_fetch_bytes - pinned_bytes_) {
    const std::string holders = open_leases(kAnyPass);
    return done(
        Status(Code::kResourceExhausted,
               fmt::format("fetch of {} parameters needs {} bytes more; max_fetch_bytes {} less {} held "
                           "leaves {}; held by: {}",
                           tensors.size(), more_bytes, options_.max_fetch_bytes, pinned_bytes_,
                           options_.max_fetch_bytes - pinned_bytes_, holders.empty() ? "nothing" : holders)),
        0);
  }
  // Pinned at once, so that neither another fetch nor read-ahead counts on their room.
  for (std::uint32_t tensor : tensors) pin(tensor);
  Fetch& fetch = fetches_.emplace_back();
  fetch.pass = pass;
  fetch.tensors = std::move(tensors);
  fetch.done = std::move(done);
  advance();
}

void Gather::advance() {
  // What happens here may finish something at once and come back: the outermost call goes round again
  // instead.
  again_ = true;
  if (advancing_) return;
  advancing_ = true;
  while (std::exchange(again_, false)) {
    bool all_placed = true;
    for (auto fetch = fetches_.begin(); fetch != fetches_.end();) {
      const auto next = std::next(fetch);
      const bool placed = place(*fetch);
      all_placed = all_placed && placed;
      if (placed && fetch->missing == 0) finish(fetch);
      fetch = next;
    }
    if (all_placed && !paused_) read_ahead();
  }
  advancing_ = false;
}

bool Gather::find_ranges(const Fetch& fetch) {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t tensor : fetch.tensors)
    if (!entries_[tensor].placed) missing.push_back(tensor);
  std::ranges::stable_sort(missing, std::greater<>(),
                           [this](std::uint32_t tensor) { return bytes_of(tensor); });
  for (std::size_t i = 0; i < missing.size(); ++i) {
    if (make_room(missing[i], 0)) continue;
    for (std::size_t given = 0; given < i; ++given) evict(missing[given]);
    return false;
  }
  return true;
}

bool Gather::place(Fetch& fetch) {
  if (fetch.placed) return true;
  if (!find_ranges(fetch)) {
    if (filling_ > 0) return false;  // what is on its way can be moved out of the way as soon as it is there
    // Its own tensors may lie in the way of each other: alone in the arena they fit one after the other.
    for (std::uint32_t tensor : fetch.tensors)
      if (entries_[tensor].pins == 1 && entries_[tensor].where == Where::kReady) evict(tensor);
    if (!find_ranges(fetch)) {
      fetch.placed = true;
      fetch.failure = Status(
          Code::kResourceExhausted,
          fmt::format(
              "no contiguous device memory for a fetch of {} parameters: {} bytes are free in parts, the "
              "longest {}; held by: {}",
              fetch.tensors.size(), ranges_.free_bytes(), ranges_.largest_free_bytes(),
              open_leases(kAnyPass)));
      return true;
    }
  }
  fetch.placed = true;
  for (std::uint32_t tensor : fetch.tensors) {
    Entry& entry = entries_[tensor];
    if (entry.where == Where::kAbsent) fill(tensor, io::Priority::kDemand);
    if (entry.where != Where::kFilling) continue;
    for (const store::Piece& piece : state_.layout.pieces_of(tensor)) weights_.expedite(piece.chunk);
    ++fetch.missing;
    entry.waiting.push_back([&fetch](Status status) {
      --fetch.missing;
      if (!status.ok() && fetch.failure.ok()) fetch.failure = std::move(status);
    });
  }
  return true;
}

void Gather::finish(std::list<Fetch>::iterator position) {
  Fetch fetch = std::move(*position);
  fetches_.erase(position);
  if (!fetch.failure.ok()) {
    for (std::uint32_t tensor : fetch.tensors) unpin(tensor);
    return fetch.done(std::move(fetch.failure), 0);
  }
  const std::uint64_t lease = next_lease_++;
  leases_.emplace(lease, OpenLease{fetch.pass, std::move(fetch.tensors)});
  fetch.done({}, lease);
}

void Gather::release(std::uint64_t lease) {
  const auto open = leases_.find(lease);
  if (open == leases_.end()) return;
  for (std::uint32_t tensor : open->second.tensors) unpin(tensor);
  leases_.erase(open);
  advance();
}

bool Gather::make_room(std::uint32_t tensor, plan::Distance needed_in) {
  Entry& entry = entries_[tensor];
  for (;;) {
    if (const std::optional<std::uint64_t> offset = ranges_.allocate(bytes_of(tensor))) {
      entry.placed = true;
      entry.offset = *offset;
      return true;
    }
    std::vector<plan::Candidate> candidates;
    for (std::uint32_t other = 0; other < entries_.size(); ++other) {
      const Entry& held = entries_[other];
      if (held.where != Where::kReady || held.pins > 0 || state_.registry.tensors()[other].kept) continue;
      const plan::Distance next = next_use(pass_, other);
      // Do no harm: what is needed sooner than this stays, unless somebody waits (needed_in 0).
      if (needed_in == 0 || next > needed_in) candidates.push_back({other, next});
    }
    const std::optional<std::uint32_t> victim = plan::farthest(candidates);
    if (!victim) return false;
    evict(*victim);
  }
}

void Gather::evict(std::uint32_t tensor) {
  Entry& entry = entries_[tensor];
  entry.where = Where::kAbsent;
  entry.gathered = false;
  if (!entry.placed || state_.registry.tensors()[tensor].kept) return;  // a kept tensor's range stays its own
  entry.placed = false;
  ranges_.release(entry.offset);
}

void Gather::fill(std::uint32_t tensor, io::Priority priority) {
  Entry& entry = entries_[tensor];
  const std::span<const store::Piece> pieces = state_.layout.pieces_of(tensor);
  entry.where = Where::kFilling;
  entry.failure = {};
  entry.pieces_left =
      pieces.size() + 1;  // one for this function, which must not finish the entry in its middle
  ++filling_;
  if (entry.pins == 0) ahead_bytes_ += bytes_of(tensor);
  for (const store::Piece& piece : pieces) {
    weights_.acquire(piece.chunk, priority, [this, tensor, &piece](Status status, std::byte* plane) {
      if (!status.ok()) return piece_done(tensor, std::move(status));
      copy_piece(tensor, piece, plane);
    });
  }
  piece_done(tensor, {});
}

void Gather::copy_piece(std::uint32_t tensor, const store::Piece& piece, std::byte* plane) {
  const store::Segment& segment = state_.layout.segments()[piece.segment];
  const std::uint64_t element_bytes = dtype_bytes(state_.registry.weight_dtype(tensor));
  if (free_copies_.empty()) free_copies_.push_back(&copies_.emplace_back());
  Copy& copy = *free_copies_.back();
  free_copies_.pop_back();
  // With several ranks shard r starts at r * shard, which is also the whole parameter's element r * shard.
  copy.target = range(tensor) + segment.first * element_bytes;
  copy.source = plane + segment.offset * element_bytes;
  copy.bytes = segment.count * element_bytes;
  copy.done = [this, tensor, chunk = piece.chunk](Copy& done) {
    Status status = done.status;
    free_copies_.push_back(&done);
    weights_.release(chunk);
    piece_done(tensor, std::move(status));
  };
  state_.counters.device_bytes_in += copy.bytes;
  state_.device->submit(copy);
}

void Gather::piece_done(std::uint32_t tensor, Status status) {
  Entry& entry = entries_[tensor];
  if (!status.ok() && entry.failure.ok())
    entry.failure = status.with_context(fmt::format("fetch '{}'", state_.registry.tensors()[tensor].name));
  if (--entry.pieces_left > 0) return;
  --filling_;
  if (entry.pins == 0) ahead_bytes_ -= bytes_of(tensor);
  entry.where = Where::kReady;
  if (!entry.failure.ok()) evict(tensor);
  for (const Done& done : std::exchange(entry.waiting, {})) done(entry.failure);
  if (filling_ == 0 && when_still_) std::exchange(when_still_, nullptr)({});
  advance();
}

void Gather::prefetch(std::span<const std::uint32_t> tensors) {
  hints_.assign(tensors.begin(), tensors.end());
  advance();
}

void Gather::follow(Follower* pass) {
  pass_ = pass;
  hints_.clear();
  advance();
}

bool Gather::start_ahead(std::uint32_t tensor, plan::Distance needed_in) {
  Entry& entry = entries_[tensor];
  if (entry.where != Where::kAbsent) return true;
  if (!entry.failure.ok()) return true;  // a broken drive is asked again only when somebody waits
  // Room on paper first: ranges in flight cannot be taken back, and a fetch must never wait for them.
  if (bytes_of(tensor) > options_.read_ahead_bytes - std::min(ahead_bytes_, options_.read_ahead_bytes))
    return false;
  if (!entry.placed && !make_room(tensor, std::max<plan::Distance>(needed_in, 1))) return false;
  fill(tensor, io::Priority::kReadAhead);
  return true;
}

void Gather::read_ahead() {
  for (std::uint32_t tensor : kept_)
    if (!start_ahead(tensor, 1)) break;
  while (!hints_.empty() && start_ahead(hints_.front(), 1)) hints_.pop_front();
  if (pass_ == nullptr) return;
  const plan::Distance horizon = std::min(pass_->horizon(), kHorizon);
  for (plan::Distance distance = 0; distance < horizon; ++distance)
    if (!start_ahead(pass_->cursor.item_ahead(distance), distance)) break;
}

void Gather::pause(Done done) {
  paused_ = true;
  if (filling_ == 0) return done({});
  when_still_ = std::move(done);
}

void Gather::resume() {
  paused_ = false;
  advance();
}

void Gather::invalidate(std::uint32_t tensor) {
  if (entries_[tensor].where == Where::kReady) evict(tensor);
  entries_[tensor].failure = {};
}

std::string Gather::describe(std::uint64_t lease, const OpenLease& open) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t tensor : open.tensors) bytes += bytes_of(tensor);
  std::string text = fmt::format("lease {} of pass {} (", lease, open.pass);
  if (!open.tensors.empty()) text += "'" + state_.registry.tensors()[open.tensors.front()].name + "'";
  if (open.tensors.size() > 1) text += fmt::format(" and {} more", open.tensors.size() - 1);
  return text + fmt::format(", {} bytes)", bytes);
}

std::string Gather::open_leases(std::uint64_t pass) const {
  std::string text;
  for (const auto& [lease, open] : leases_)
    if (pass == kAnyPass || open.pass == pass) text += (text.empty() ? "" : ", ") + describe(lease, open);
  return text;
}

std::string Gather::leases_on(const std::function<bool(std::uint32_t)>& concerned) const {
  std::string text;
  for (const auto& [lease, open] : leases_)
    if (std::ranges::any_of(open.tensors, concerned))
      text += (text.empty() ? "" : ", ") + describe(lease, open);
  return text;
}

}  // namespace sluice::engine
