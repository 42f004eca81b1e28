#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <utility>

#include "comm/meeting.hpp"
#include "sluice/communicator.hpp"

namespace sluice {
namespace {

using comm::Collective;
using comm::Meeting;
using comm::Part;

void copy_bytes(std::byte* target, const std::byte* source, std::uint64_t bytes) {
  if (bytes != 0 && target != source) std::memcpy(target, source, bytes);
}

// Each rank copies what it needs straight from its peers' buffers while they wait in the same call.
class InProcess final : public Communicator {
 public:
  InProcess(std::uint32_t rank, std::shared_ptr<Meeting> meeting)
      : rank_(rank), owner_(getpid()), meeting_(std::move(meeting)) {}

  ~InProcess() override {
    if (forked())  // its locks may be held by threads that the child does not have
      static_cast<void>(new std::shared_ptr<Meeting>(std::move(meeting_)));
    else
      meeting_->end(Status(Code::kUnavailable, fmt::format("rank {} destroyed its communicator", rank_)));
  }

  std::uint32_t rank() const override { return rank_; }
  std::uint32_t world() const override { return meeting_->world(); }

  Status all_gather(std::span<const GatheredShards> tensors) override {
    return call({.collective = Collective::kAllGather, .tensors = tensors}, [&] {
      for (std::uint32_t step = 1; step < world(); ++step) {
        const std::uint32_t peer = (rank_ + step) % world();  // ranks start at different peers
        for (std::size_t i = 0; i < tensors.size(); ++i) {
          const std::uint64_t offset = peer * tensors[i].shard_bytes;
          if (tensors[i].shard_bytes != 0)
            copy_bytes(tensors[i].base + offset, meeting_->part(peer).tensors[i].base + offset,
                       tensors[i].shard_bytes);
        }
      }
    });
  }

  Status all_to_all(std::span<const std::span<const std::byte>> sends,
                    std::span<const std::span<std::byte>> receives) override {
    return call({.collective = Collective::kAllToAll, .sends = sends, .receives = receives}, [&] {
      for (std::uint32_t step = 0; step < world(); ++step) {
        const std::uint32_t peer = (rank_ + step) % world();
        copy_bytes(receives[peer].data(), meeting_->part(peer).sends[rank_].data(), receives[peer].size());
      }
    });
  }

  Status barrier() override {
    return call({.collective = Collective::kBarrier}, [] {});
  }

  Result<std::shared_ptr<Communicator>> duplicate() override {
    std::shared_ptr<Meeting> meeting;
    SLUICE_RETURN_IF_ERROR(
        call({.collective = Collective::kDuplicate}, [&] { meeting = meeting_->duplicate(); }));
    return std::shared_ptr<Communicator>(std::make_shared<InProcess>(rank_, std::move(meeting)));
  }

  void abort(Status cause) override {
    if (forked()) return;
    meeting_->end(Status(Code::kUnavailable, fmt::format("rank {} gave up: {}", rank_, cause.to_string()),
                         cause.native()));
  }

 private:
  bool forked() const { return getpid() != owner_; }

  template <class Exchange>
  Status call(const Part& part, Exchange exchange) {
    if (forked()) return Status(Code::kForked, "a communicator is of use in the process that made it alone");
    SLUICE_RETURN_IF_ERROR(meeting_->arrive(rank_, part));
    exchange();
    return meeting_->leave(rank_);
  }

  const std::uint32_t rank_;
  const pid_t owner_;
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

std::shared_ptr<Communicator> make_single_communicator() {
  return std::make_shared<InProcess>(0, std::make_shared<Meeting>(1));
}

Result<std::vector<std::shared_ptr<Communicator>>> make_in_process_communicators(std::uint32_t world) {
  if (world < 1 || world > 4096)
    return Status(Code::kInvalidArgument, fmt::format("world: {} is not in 1..4096", world));
  const auto meeting = std::make_shared<Meeting>(world);
  std::vector<std::shared_ptr<Communicator>> ranks;
  for (std::uint32_t rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_shared<InProcess>(rank, meeting));
  return ranks;
}

}  // namespace sluice
