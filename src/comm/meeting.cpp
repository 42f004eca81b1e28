#include "comm/meeting.hpp"

#include <fmt/format.h>

namespace sluice::comm {
namespace {

const char* name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kBarrier:
      return "barrier";
    case Collective::kDuplicate:
      return "duplicate";
  }
  return "unknown";
}

Status check_all_gather(std::span<const Part> parts) {
  const std::span<const GatheredShards> first = parts[0].tensors;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    const std::span<const GatheredShards> tensors = parts[rank].tensors;
    if (tensors.size() != first.size())
      return Status(Code::kInvalidArgument, fmt::format("all_gather: {} tensors on rank 0, {} on rank {}",
                                                        first.size(), tensors.size(), rank));
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (tensors[i].shard_bytes != first[i].shard_bytes)
        return Status(Code::kInvalidArgument,
                      fmt::format("all_gather: tensor {} has shards of {} bytes on rank 0, of {} on rank {}",
                                  i, first[i].shard_bytes, tensors[i].shard_bytes, rank));
      if (tensors[i].base == nullptr && tensors[i].shard_bytes != 0)
        return Status(Code::kInvalidArgument,
                      fmt::format("all_gather: tensor {} has shards of {} bytes and a null base on rank {}",
                                  i, tensors[i].shard_bytes, rank));
    }
  }
  return {};
}

Status check_all_to_all(std::span<const Part> parts) {
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    if (parts[rank].sends.size() != parts.size() || parts[rank].receives.size() != parts.size())
      return Status(Code::kInvalidArgument,
                    fmt::format("all_to_all: {} sends and {} receives on rank {} of {}",
                                parts[rank].sends.size(), parts[rank].receives.size(), rank, parts.size()));
  for (std::size_t target = 0; target < parts.size(); ++target)
    for (std::size_t source = 0; source < parts.size(); ++source) {
      const std::size_t sent_bytes = parts[source].sends[target].size();
      const std::size_t received_bytes = parts[target].receives[source].size();
      if (sent_bytes != received_bytes)
        return Status(Code::kInvalidArgument,
                      fmt::format("all_to_all: rank {} sends {} bytes to rank {}, which takes {}", source,
                                  sent_bytes, target, received_bytes));
    }
  return {};
}

}  // namespace

Status check_parts(std::span<const Part> parts) {
  const Collective collective = parts[0].collective;
  for (std::size_t rank = 1; rank < parts.size(); ++rank)
    if (parts[rank].collective != collective)
      return Status(Code::kFailedPrecondition,
                    fmt::format("rank 0 calls {} while rank {} calls {}", name_of(collective), rank,
                                name_of(parts[rank].collective)));
  if (collective == Collective::kAllGather) return check_all_gather(parts);
  if (collective == Collective::kAllToAll) return check_all_to_all(parts);
  return {};
}

Meeting::Meeting(std::uint32_t world) : parts_(world), in_call_(world) {}

Status Meeting::arrive(std::uint32_t rank, const Part& part) {
  std::unique_lock lock(mutex_);
  if (!ended_.ok()) return ended_;
  if (in_call_[rank])
    return Status(Code::kFailedPrecondition,
                  fmt::format("rank {}: {} called while a {} is under way", rank, name_of(part.collective),
                              name_of(parts_[rank].collective)));
  in_call_[rank] = true;
  parts_[rank] = part;
  const std::uint64_t gathering = gatherings_;
  if (++arrived_ == world()) {
    arrived_ = 0;
    outcome_ = check_parts(parts_);
    if (outcome_.ok() && part.collective == Collective::kDuplicate)
      duplicate_ = std::make_shared<Meeting>(world());
    ++gatherings_;
    changed_.notify_all();
  } else {
    changed_.wait(lock, [&] { return gatherings_ != gathering || !ended_.ok(); });
  }
  Status status = gatherings_ != gathering ? outcome_ : ended_;
  if (status.ok() && !ended_.ok()) {
    wait_for_readers(lock);
    status = ended_;
  }
  if (status.ok())
    ++reading_;
  else
    in_call_[rank] = false;
  return status;
}

Status Meeting::leave(std::uint32_t rank) {
  std::unique_lock lock(mutex_);
  --reading_;
  const std::uint64_t departure = departures_;
  if (++left_ == world()) {
    left_ = 0;
    duplicate_ = nullptr;
    ++departures_;
    changed_.notify_all();
  } else {
    if (!ended_.ok()) changed_.notify_all();
    changed_.wait(lock, [&] { return departures_ != departure || !ended_.ok(); });
    if (departures_ == departure) wait_for_readers(lock);
  }
  in_call_[rank] = false;
  return departures_ != departure ? Status() : ended_;
}

// Once the meeting has ended no rank starts to read, those that do will finish, and until then every rank's
// buffers must stay.
void Meeting::wait_for_readers(std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [this] { return reading_ == 0; });
}

void Meeting::end(const Status& cause) {
  const std::lock_guard lock(mutex_);
  if (ended_.ok()) ended_ = cause;
  changed_.notify_all();
}

}  // namespace sluice::comm
