#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sluice/status.hpp"

namespace sluice::plan {

/// Bytes of one chunk in host memory, as they are laid out for direct I/O.
struct ChunkSizes {
  std::uint64_t record_bytes = 0;
  std::uint64_t gradient_bytes = 0;  ///< 0: never stepped
  std::uint64_t weight_bytes = 0;
};

enum class NvmeTier : std::uint8_t { kPresent, kAbsent };

struct HostRequest {
  std::span<const ChunkSizes> chunks = {};  ///< in the order of the step
  std::uint64_t budget_bytes = 0;           ///< kUnlimited: all that the state needs
  std::uint64_t reserved_bytes = 0;         ///< commit places and fixed tables, taken first
  NvmeTier nvme = NvmeTier::kPresent;
};

/// How the host budget is spent.
/// Invariants:
///   total_bytes = reserved_bytes + record_frames * record_frame_bytes + gradient_frames *
///   gradient_frame_bytes
///               + weight_frames * weight_frame_bytes + resident_bytes  <=  budget_bytes
///   record_frames <= stepped chunks that are not resident; gradient_frames <= stepped chunks;
///   weight_frames <= chunks that are not resident.
struct HostPartition {
  std::uint32_t record_frames = 0;  ///< for the step's read, update and write of chunks that are not resident
  std::uint32_t gradient_frames = 0;  ///< for any stepped chunk
  std::uint32_t weight_frames = 0;    ///< for fetches of chunks that are not resident
  std::uint64_t record_frame_bytes = 0;
  std::uint64_t gradient_frame_bytes = 0;
  std::uint64_t weight_frame_bytes = 0;
  std::vector<bool> resident;  ///< by chunk: its whole record stays in host memory, it needs no slot on NVMe
  std::uint64_t resident_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t least_bytes = 0;  ///< the smallest budget that partition_host accepts for these chunks
  /// Gradient slots on NVMe: 0 if every stepped chunk has a gradient frame, else all stepped chunks, so that
  /// each owns its slot and a spill never waits for one.
  std::uint32_t spilled_gradients = 0;
  /// Bytes between NVMe and host of one step with one forward and one backward: records of chunks that are
  /// not resident read and written, their weights read twice, gradients without a frame written and read.
  std::uint64_t traffic_bytes = 0;
  std::string arithmetic;  ///< the parts, one a line, for people
};

/// Divides the host budget. At least 3 x (largest record + its gradient plane: read, update, write) + 2 x
/// largest weight plane + what is reserved, less where there are fewer chunks. What is beyond goes to
/// gradient frames until every stepped chunk has one, to whole resident records (from the first chunk on, in one
/// class that of the first registered parameters, whose gradients a backward pass gives last: a resident record
/// is not updated before all are in; stepped ones before frozen ones), and what is left over to weight frames; on the way up to a quarter of it buys depth, up
/// to 8 record and 8 weight frames. More budget never gives more traffic_bytes.
/// Errors: kResourceExhausted with the arithmetic: needed, given, the smallest budget that would do.
/// Threads: any; pure.
/// Cost: linear in the chunks.
Result<HostPartition> partition_host(const HostRequest& request);

}  // namespace sluice::plan
