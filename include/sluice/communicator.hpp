#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sluice/status.hpp"

namespace sluice {

/// Equal shards of one tensor, gathered in place: rank r's shard is at base + r * shard_bytes.
/// Shape: base holds world * shard_bytes bytes.
struct GatheredShards {
  std::byte* base = nullptr;
  std::uint64_t shard_bytes = 0;
};

/// The ranks that share parameters. Every call is collective: all ranks make it, in the same order.
/// Threads: one at a time. Blocks: until the peers have made the call.
/// Errors: kUnavailable when a peer is gone or called abort(); it is sticky, every later call returns it.
/// kInvalidArgument on every rank when lengths disagree; then no buffer is written and the next call works. kForked in
/// a forked child, where the destructor does nothing.
class SLUICE_API Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::uint32_t rank() const = 0;
  virtual std::uint32_t world() const = 0;

  /// Every rank's shard of every tensor to every rank; one group, so small tensors cost one exchange.
  /// Requires: the same number of tensors with the same shard_bytes on every rank, 0 among them; base not null unless
  /// shard_bytes is 0. After kUnavailable what base holds beside this rank's shard is unspecified.
  virtual Status all_gather(std::span<const GatheredShards> tensors) = 0;

  /// Sends `sends[r]` to rank r and fills `receives[r]` from rank r. With a local sum in order of rank this is
  /// the reduce-scatter whose bits do not depend on the transport.
  /// Requires: world() entries each; receives[r] as long as rank r's sends[rank()]; own entries are copied. What is
  /// received overlaps nothing that is sent, but its own entry, which may be the same bytes.
  virtual Status all_to_all(std::span<const std::span<const std::byte>> sends,
                            std::span<const std::span<std::byte>> receives) = 0;

  virtual Status barrier() = 0;

  /// A communicator of the same ranks whose calls need no agreement with this one's (collective).
  virtual Result<std::shared_ptr<Communicator>> duplicate() = 0;

  /// Ends every rank's calls on this communicator with kUnavailable and `cause`; not collective. Threads: any.
  virtual void abort(Status cause) = 0;
};

/// A world of one.
SLUICE_API std::shared_ptr<Communicator> make_single_communicator();

/// `world` ranks as threads of this process; entry r is rank r's. Waiting ranks sleep.
/// A rank that destroys its communicator ends the calls that its peers make or wait in. Ranks that make different calls
/// all get kFailedPrecondition, and so does a rank that makes a second call while it is in one; neither is sticky.
/// Errors: kInvalidArgument unless 1 <= world <= 4096.
SLUICE_API Result<std::vector<std::shared_ptr<Communicator>>> make_in_process_communicators(std::uint32_t world);

}  // namespace sluice
