#include "plan/host_partition.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "sluice/options.hpp"

namespace sluice::plan {
namespace {

using testing::Each;
using testing::HasSubstr;

using Chunks = std::vector<ChunkSizes>;

constexpr ChunkSizes kStepped = {.record_bytes = 1200, .gradient_bytes = 400, .weight_bytes = 200};
constexpr ChunkSizes kFrozen = {.record_bytes = 200, .gradient_bytes = 0, .weight_bytes = 200};

Chunks stepped(std::size_t count) { return Chunks(count, kStepped); }

Result<HostPartition> divide(const Chunks& chunks, std::uint64_t budget_bytes,
                             std::uint64_t reserved_bytes = 0, NvmeTier nvme = NvmeTier::kPresent) {
  return partition_host(
      {.chunks = chunks, .budget_bytes = budget_bytes, .reserved_bytes = reserved_bytes, .nvme = nvme});
}

std::size_t residents(const HostPartition& partition) {
  return static_cast<std::size_t>(std::count(partition.resident.begin(), partition.resident.end(), true));
}

TEST(HostPartition, LeastIsThreeRecordsWithGradientsAndTwoWeights) {
  const auto partition = divide(stepped(20), 3 * 1600 + 2 * 200 + 64, 64);
  ASSERT_TRUE(partition.ok()) << partition.status().to_string();
  EXPECT_EQ(partition->record_frames, 3u);
  EXPECT_EQ(partition->gradient_frames, 3u);
  EXPECT_EQ(partition->weight_frames, 2u);
  EXPECT_EQ(partition->record_frame_bytes, 1200u);
  EXPECT_EQ(partition->gradient_frame_bytes, 400u);
  EXPECT_EQ(partition->weight_frame_bytes, 200u);
  EXPECT_EQ(partition->total_bytes, 5264u);
  EXPECT_EQ(partition->least_bytes, 5264u);
  EXPECT_EQ(partition->spilled_gradients, 20u);
  EXPECT_EQ(residents(*partition), 0u);
}

TEST(HostPartition, RefusalNamesNeededGivenAndTheParts) {
  const auto partition = divide(stepped(20), 5263, 64);
  ASSERT_EQ(partition.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(partition.status().message(), HasSubstr("host_budget_bytes = 5263"));
  EXPECT_THAT(partition.status().message(), HasSubstr("smallest that would do is 5264"));
  EXPECT_THAT(partition.status().message(), HasSubstr("3 x 1200 bytes: record frames"));
  EXPECT_THAT(partition.status().message(), HasSubstr("3 x 400 bytes: gradient frames"));
  EXPECT_THAT(partition.status().message(), HasSubstr("2 x 200 bytes: weight frames"));
  EXPECT_THAT(partition.status().message(), HasSubstr("fixed = 64 bytes"));
  EXPECT_THAT(partition.status().message(), HasSubstr("total = 5264 bytes"));
}

TEST(HostPartition, FewChunksNeedOnlyTheirOwnFrames) {
  const auto one = divide(stepped(1), 1'000'000);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->least_bytes, 1600u);  // resident: its record and its gradient, no frames beside them
  EXPECT_EQ(one->total_bytes, 1600u);
  EXPECT_EQ(residents(*one), 1u);
  EXPECT_EQ(divide(stepped(3), 1'000'000)->least_bytes, 4800u);
  EXPECT_EQ(divide(stepped(3), 4799).status().code(), Code::kResourceExhausted);
}

TEST(HostPartition, FrozenChunksNeedOnlyWeightFrames) {
  const auto partition = divide(Chunks(10, kFrozen), 400);
  ASSERT_TRUE(partition.ok());
  EXPECT_EQ(partition->record_frames, 0u);
  EXPECT_EQ(partition->gradient_frames, 0u);
  EXPECT_EQ(partition->weight_frames, 2u);
  EXPECT_EQ(partition->spilled_gradients, 0u);
  EXPECT_EQ(partition->least_bytes, 400u);
}

TEST(HostPartition, NoChunksNeedOnlyWhatIsReserved) {
  const auto partition = divide({}, 64, 64);
  ASSERT_TRUE(partition.ok());
  EXPECT_EQ(partition->total_bytes, 64u);
  EXPECT_EQ(divide({}, 63, 64).status().code(), Code::kResourceExhausted);
}

TEST(HostPartition, UnlimitedHoldsEverythingAndNothingElse) {
  Chunks chunks = stepped(50);
  chunks.insert(chunks.end(), 7, kFrozen);
  for (const NvmeTier nvme : {NvmeTier::kPresent, NvmeTier::kAbsent}) {
    const auto partition = divide(chunks, kUnlimited, 64, nvme);
    ASSERT_TRUE(partition.ok());
    EXPECT_THAT(partition->resident, Each(true));
    EXPECT_EQ(partition->resident_bytes, 50u * 1200 + 7 * 200);
    EXPECT_EQ(partition->record_frames, 0u);
    EXPECT_EQ(partition->weight_frames, 0u);
    EXPECT_EQ(partition->gradient_frames, 50u);
    EXPECT_EQ(partition->spilled_gradients, 0u);
    EXPECT_EQ(partition->traffic_bytes, 0u);
    EXPECT_EQ(partition->total_bytes, 50u * 1600 + 7 * 200 + 64);
  }
}

TEST(HostPartition, WithoutNvmeEverythingIsResidentOrRefused) {
  EXPECT_TRUE(divide(stepped(20), 20 * 1600, 0, NvmeTier::kAbsent).ok());
  const auto partition = divide(stepped(20), 20 * 1600 - 1, 0, NvmeTier::kAbsent);
  ASSERT_EQ(partition.status().code(), Code::kResourceExhausted);
  EXPECT_THAT(partition.status().message(), HasSubstr("smallest that would do is 32000"));
  EXPECT_THAT(partition.status().message(), HasSubstr("without a directory"));
}

TEST(HostPartition, GradientsComeBeforeResidentRecords) {
  const auto partition = divide(stepped(100), 5200 + 100 * 400);
  ASSERT_TRUE(partition.ok());
  EXPECT_GT(partition->spilled_gradients, 0u);  // some of the room went to depth
  EXPECT_GE(partition->gradient_frames, 70u);
  EXPECT_GT(partition->record_frames, 3u);
  EXPECT_EQ(residents(*partition), 0u);
}

TEST(HostPartition, DepthCostsAtMostAQuarterOfWhatIsBeyondTheLeast) {
  for (std::uint64_t budget_bytes = 5200; budget_bytes < 60'000; budget_bytes += 100) {
    const auto partition = divide(stepped(100), budget_bytes);
    ASSERT_TRUE(partition.ok());
    EXPECT_LE(partition->record_frames, 8u);
    const std::uint64_t depth_bytes = (partition->record_frames - 3) * 1200;
    EXPECT_LE(depth_bytes, (budget_bytes - 5200) / 4);
  }
}

TEST(HostPartition, ResidentsAreTakenFromTheFirstOnSteppedBeforeFrozen) {
  const Chunks chunks = {kFrozen, kStepped, kStepped, kStepped, kStepped, kStepped, kFrozen, kStepped};
  std::size_t seen_partly = 0;
  for (std::uint64_t budget_bytes = 6000; budget_bytes < 11'000; budget_bytes += 100) {
    const auto partition = divide(chunks, budget_bytes);
    ASSERT_TRUE(partition.ok());
    const auto& resident = partition->resident;
    const std::vector<std::size_t> order = {1, 2, 3, 4, 5, 7, 0, 6};
    for (std::size_t i = 0; i + 1 < order.size(); ++i) EXPECT_GE(resident[order[i]], resident[order[i + 1]]);
    seen_partly += residents(*partition) > 0 && residents(*partition) < chunks.size();
  }
  EXPECT_GT(seen_partly, 0u);
}

TEST(HostPartition, FramesFitTheLargestChunkOfEachKind) {
  Chunks chunks = stepped(30);
  chunks[4] = {.record_bytes = 100, .gradient_bytes = 900, .weight_bytes = 50};
  chunks[5] = {.record_bytes = 5000, .gradient_bytes = 0, .weight_bytes = 5000};
  const auto partition = divide(chunks, 3 * (1200 + 900) + 2 * 5000);
  ASSERT_TRUE(partition.ok());
  EXPECT_EQ(partition->record_frame_bytes, 1200u);  // frozen records need no record frame
  EXPECT_EQ(partition->gradient_frame_bytes, 900u);
  EXPECT_EQ(partition->weight_frame_bytes, 5000u);
}

TEST(HostPartition, SizesBeyond64BitsAreRefusedNotWrapped) {
  const std::uint64_t huge = std::uint64_t{1} << 62;
  const Chunks chunks(64, {.record_bytes = huge, .gradient_bytes = huge, .weight_bytes = huge});
  EXPECT_EQ(divide(chunks, kUnlimited - 1).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(divide(chunks, kUnlimited).status().code(), Code::kResourceExhausted);
}

Chunks random_chunks(std::mt19937& random) {
  Chunks chunks(random() % 40);
  for (ChunkSizes& chunk : chunks) {
    chunk.weight_bytes = 1 + random() % 500;
    const bool frozen = random() % 3 == 0;
    chunk.record_bytes = frozen ? chunk.weight_bytes : chunk.weight_bytes + 1 + random() % 3000;
    chunk.gradient_bytes = frozen ? 0 : 1 + random() % 1000;
  }
  return chunks;
}

TEST(HostPartition, MoreBudgetNeverCostsMoreTraffic) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Chunks chunks = random_chunks(random);
    const std::uint64_t reserved_bytes = random() % 1000;
    std::uint64_t traffic_bytes = kUnlimited;
    for (std::uint64_t budget_bytes = 0; budget_bytes < 250'000; budget_bytes += 1 + random() % 2000) {
      const auto partition = divide(chunks, budget_bytes, reserved_bytes);
      if (!partition.ok()) {
        EXPECT_EQ(traffic_bytes, kUnlimited) << "refused above a budget that was accepted: " << budget_bytes;
        continue;
      }
      EXPECT_LE(partition->traffic_bytes, traffic_bytes) << "budget " << budget_bytes;
      traffic_bytes = partition->traffic_bytes;
    }
    EXPECT_EQ(traffic_bytes, 0u);
  }
}

TEST(HostPartition, InvariantsHoldForAnySizesAndBudget) {
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const Chunks chunks = random_chunks(random);
    const std::uint64_t reserved_bytes = random() % 1000;
    const std::uint64_t budget_bytes = random() % 60'000;
    const auto partition = divide(chunks, budget_bytes, reserved_bytes);
    if (!partition.ok()) continue;

    std::uint32_t outside = 0, outside_stepped = 0, all_stepped = 0;
    std::uint64_t resident_bytes = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const bool is_stepped = chunks[i].gradient_bytes > 0;
      all_stepped += is_stepped;
      EXPECT_LE(chunks[i].gradient_bytes, partition->gradient_frame_bytes);
      if (partition->resident[i]) {
        resident_bytes += chunks[i].record_bytes;
        continue;
      }
      ++outside;
      outside_stepped += is_stepped;
      EXPECT_LE(chunks[i].weight_bytes, partition->weight_frame_bytes);
      if (is_stepped) {
        EXPECT_LE(chunks[i].record_bytes, partition->record_frame_bytes);
      }
    }
    EXPECT_EQ(partition->resident_bytes, resident_bytes);
    EXPECT_LE(partition->record_frames, outside_stepped);
    EXPECT_GE(partition->record_frames, std::min(3u, outside_stepped));
    EXPECT_LE(partition->gradient_frames, all_stepped);
    EXPECT_GE(partition->gradient_frames, std::min(3u, all_stepped));
    EXPECT_LE(partition->weight_frames, outside);
    EXPECT_GE(partition->weight_frames, std::min(2u, outside));
    EXPECT_EQ(partition->spilled_gradients, partition->gradient_frames < all_stepped ? all_stepped : 0);
    EXPECT_EQ(partition->total_bytes, reserved_bytes + resident_bytes +
                                          partition->record_frames * partition->record_frame_bytes +
                                          partition->gradient_frames * partition->gradient_frame_bytes +
                                          partition->weight_frames * partition->weight_frame_bytes);
    EXPECT_LE(partition->total_bytes, budget_bytes);
    EXPECT_LE(partition->least_bytes, partition->total_bytes);
    EXPECT_TRUE(divide(chunks, partition->least_bytes, reserved_bytes).ok());
    if (partition->least_bytes > 0) {
      EXPECT_FALSE(divide(chunks, partition->least_bytes - 1, reserved_bytes).ok());
    }
  }
}

}  // namespace
}  // namespace sluice::plan
