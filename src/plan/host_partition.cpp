#include "plan/host_partition.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace sluice::plan {
namespace {

constexpr std::uint32_t kStepFrames = 3;    // read, update, write
constexpr std::uint32_t kWeightFrames = 2;  // one in use, one on its way
constexpr std::uint32_t kDepthMax = 8;
constexpr std::uint64_t kDepthShare = 4;  // depth costs at most this part of what is bought

constexpr std::uint64_t kTooMany = std::numeric_limits<std::uint64_t>::max();

std::uint64_t add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooMany : sum;
}

std::uint64_t multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kTooMany : product;
}

struct Counts {
  std::uint32_t records = 0;
  std::uint32_t gradients = 0;
  std::uint32_t weights = 0;
  std::uint32_t residents = 0;
};

/// All partitions worth having, each with no more traffic than the one before, in an order that no budget
/// changes: so the last one that fits is the best for a budget, and never worse for a larger one. Their costs
/// need not rise: with everything resident no frames are needed.
class Ladder {
 public:
  explicit Ladder(const HostRequest& request);

  Counts lowest() const;
  Counts highest() const { return {0, stepped_, 0, count_}; }
  /// The next partition; false after the highest.
  bool climb(Counts& counts);

  /// Everything but `resident`, `least_bytes` and `arithmetic`.
  HostPartition at(const Counts& counts) const;
  std::vector<bool> residents(std::uint32_t count) const;

 private:
  /// What is left outside when the first of `order_` are resident.
  struct Left {
    std::uint64_t record_bytes_max = 0;  // of stepped chunks
    std::uint64_t weight_bytes_max = 0;
    std::uint64_t traffic_bytes = 0;
    std::uint32_t stepped = 0;
  };

  bool buy_depth(std::uint32_t& frames, std::uint64_t frame_bytes);

  HostRequest request_;
  std::uint32_t count_ = 0;
  std::uint32_t stepped_ = 0;
  std::uint64_t gradient_bytes_max_ = 0;
  std::vector<std::uint32_t> order_;           // in which chunks become resident
  std::vector<std::uint64_t> resident_bytes_;  // by number of residents
  std::vector<Left> left_;                     // by number of residents
  std::uint64_t bought_bytes_ = 0;
  std::uint64_t depth_bytes_ = 0;
};

Ladder::Ladder(const HostRequest& request)
    : request_(request),
      count_(static_cast<std::uint32_t>(request.chunks.size())),
      resident_bytes_(count_ + std::size_t{1}),
      left_(count_ + std::size_t{1}) {
  const auto is_stepped = [&](std::uint32_t chunk) { return request.chunks[chunk].gradient_bytes > 0; };
  order_.resize(count_);
  std::iota(order_.begin(), order_.end(), 0U);
  const auto frozen = std::stable_partition(order_.begin(), order_.end(), is_stepped);
  stepped_ = static_cast<std::uint32_t>(frozen - order_.begin());

  for (std::uint32_t i = 0; i < count_; ++i) {
    resident_bytes_[i + 1] = add(resident_bytes_[i], request.chunks[order_[i]].record_bytes);
  }
  for (std::uint32_t i = count_; i-- > 0;) {
    const ChunkSizes& chunk = request.chunks[order_[i]];
    Left left = left_[i + 1];
    left.weight_bytes_max = std::max(left.weight_bytes_max, chunk.weight_bytes);
    left.traffic_bytes = add(left.traffic_bytes, multiply(2, chunk.weight_bytes));
    if (is_stepped(order_[i])) {
      ++left.stepped;
      left.record_bytes_max = std::max(left.record_bytes_max, chunk.record_bytes);
      left.traffic_bytes = add(left.traffic_bytes, multiply(2, chunk.record_bytes));
      gradient_bytes_max_ = std::max(gradient_bytes_max_, chunk.gradient_bytes);
    }
    left_[i] = left;
  }
}

Counts Ladder::lowest() const {
  return {std::min(kStepFrames, stepped_), std::min(kStepFrames, stepped_), std::min(kWeightFrames, count_),
          0};
}

bool Ladder::buy_depth(std::uint32_t& frames, std::uint64_t frame_bytes) {
  const std::uint64_t depth_bytes = add(depth_bytes_, frame_bytes);
  const std::uint64_t bought_bytes = add(bought_bytes_, frame_bytes);
  if (depth_bytes > bought_bytes / kDepthShare) return false;
  ++frames;
  depth_bytes_ = depth_bytes;
  bought_bytes_ = bought_bytes;
  return true;
}

bool Ladder::climb(Counts& counts) {
  const bool weights_wanted = counts.weights < std::min(kDepthMax, count_);
  const bool records_wanted = counts.records < std::min(kDepthMax, stepped_);
  if (weights_wanted && (counts.weights <= counts.records || !records_wanted)) {
    if (buy_depth(counts.weights, left_[0].weight_bytes_max)) return true;
  } else if (records_wanted) {
    if (buy_depth(counts.records, left_[0].record_bytes_max)) return true;
  }
  if (counts.gradients < stepped_) {
    ++counts.gradients;
    bought_bytes_ = add(bought_bytes_, gradient_bytes_max_);
    return true;
  }
  if (counts.residents == count_) return false;
  bought_bytes_ = add(bought_bytes_, request_.chunks[order_[counts.residents]].record_bytes);
  ++counts.residents;
  return true;
}

std::uint64_t total_of(const HostPartition& partition, std::uint64_t reserved_bytes) {
  std::uint64_t total = add(reserved_bytes, partition.resident_bytes);
  total = add(total, multiply(partition.record_frames, partition.record_frame_bytes));
  total = add(total, multiply(partition.gradient_frames, partition.gradient_frame_bytes));
  return add(total, multiply(partition.weight_frames, partition.weight_frame_bytes));
}

HostPartition Ladder::at(const Counts& counts) const {
  const Left& left = left_[counts.residents];
  HostPartition partition;
  partition.record_frames = std::min(counts.records, left.stepped);
  partition.gradient_frames = counts.gradients;
  partition.weight_frames = std::min(counts.weights, count_ - counts.residents);
  partition.record_frame_bytes = left.record_bytes_max;
  partition.gradient_frame_bytes = gradient_bytes_max_;
  partition.weight_frame_bytes = left.weight_bytes_max;
  partition.resident_bytes = resident_bytes_[counts.residents];
  const std::uint32_t without_frame = stepped_ - counts.gradients;
  partition.spilled_gradients = without_frame > 0 ? stepped_ : 0;
  partition.traffic_bytes =
      add(left.traffic_bytes, multiply(2 * std::uint64_t{without_frame}, gradient_bytes_max_));
  partition.total_bytes = total_of(partition, request_.reserved_bytes);
  return partition;
}

std::vector<bool> Ladder::residents(std::uint32_t count) const {
  std::vector<bool> resident(count_);
  for (std::uint32_t i = 0; i < count; ++i) resident[order_[i]] = true;
  return resident;
}

std::string describe(const HostPartition& partition, std::uint32_t residents, std::uint64_t reserved_bytes) {
  std::string text;
  const auto part = [&](std::uint32_t count, std::string_view what, std::uint64_t each_bytes) {
    if (count == 0) return;
    text +=
        fmt::format("  {} x {} bytes: {} = {} bytes\n", count, each_bytes, what, multiply(count, each_bytes));
  };
  part(partition.record_frames, "record frames (a step reads, updates, writes)",
       partition.record_frame_bytes);
  part(partition.gradient_frames, "gradient frames", partition.gradient_frame_bytes);
  part(partition.weight_frames, "weight frames (fetches)", partition.weight_frame_bytes);
  if (residents > 0)
    text += fmt::format("  records of {} resident chunks = {} bytes\n", residents, partition.resident_bytes);
  if (reserved_bytes > 0) text += fmt::format("  fixed = {} bytes\n", reserved_bytes);
  return text + fmt::format("  total = {} bytes", partition.total_bytes);
}

}  // namespace

Result<HostPartition> partition_host(const HostRequest& request) {
  if (request.chunks.size() >= std::numeric_limits<std::uint32_t>::max()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} chunks: at most 2^32 - 2 are possible", request.chunks.size()));
  }
  Ladder ladder(request);
  Counts least = ladder.highest();
  std::uint64_t least_bytes = ladder.at(least).total_bytes;
  std::optional<Counts> best;
  const auto consider = [&](const Counts& counts) {
    const std::uint64_t total_bytes = ladder.at(counts).total_bytes;
    if (total_bytes <= request.budget_bytes && total_bytes != kTooMany) best = counts;
    if (total_bytes >= least_bytes) return;
    least = counts;
    least_bytes = total_bytes;
  };
  if (request.nvme == NvmeTier::kAbsent) {
    consider(ladder.highest());
  } else {
    Counts counts = ladder.lowest();
    do {
      consider(counts);
    } while (ladder.climb(counts));
  }

  if (!best) {
    const std::string_view why =
        request.nvme == NvmeTier::kAbsent
            ? "without a directory for NVMe the whole state stays in host memory"
            : "the least that a step and a fetch work with; smaller chunks need less";
    return Status(
        Code::kResourceExhausted,
        fmt::format("host_budget_bytes = {} is too small, the smallest that would do is {} ({}):\n{}",
                    request.budget_bytes, least_bytes, why,
                    describe(ladder.at(least), least.residents, request.reserved_bytes)));
  }

  HostPartition partition = ladder.at(*best);
  const auto count = static_cast<std::uint32_t>(request.chunks.size());
  if (partition.weight_frame_bytes > 0) {
    const std::uint64_t more = (request.budget_bytes - partition.total_bytes) / partition.weight_frame_bytes;
    const std::uint32_t without = count - best->residents - partition.weight_frames;
    partition.weight_frames += static_cast<std::uint32_t>(std::min<std::uint64_t>(more, without));
    partition.total_bytes = total_of(partition, request.reserved_bytes);
  }
  partition.least_bytes = least_bytes;
  partition.resident = ladder.residents(best->residents);
  partition.arithmetic = describe(partition, best->residents, request.reserved_bytes);
  return partition;
}

}  // namespace sluice::plan
