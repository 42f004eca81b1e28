#include "store/layout.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>

namespace sluice::store {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::uint32_t kChunk = 16384;
constexpr LayoutOptions kSmall = {.chunk_elements = kChunk, .grid_bytes = 4096};

ParameterSpec parameter(std::uint64_t elements, Policy policy = Policy::kBf16Split) {
  ParameterSpec spec;
  spec.name = std::to_string(elements) + " elements";
  spec.elements = elements;
  spec.policy = policy;
  return spec;
}

ElementLayout built(const std::vector<ParameterSpec>& specs, LayoutOptions options = kSmall) {
  auto layout = ElementLayout::build(specs, options);
  EXPECT_TRUE(layout.ok()) << layout.status().to_string();
  return std::move(*layout);
}

struct ShardCase {
  std::uint64_t elements;
  std::uint32_t world;
  std::uint64_t shard;
  std::vector<std::uint64_t> counts;  // by rank
};

TEST(Shards, ExactCases) {
  const ShardCase cases[] = {
      {10, 4, 256, {10, 0, 0, 0}},
      {1000, 3, 512, {512, 488, 0}},
      {0, 3, 0, {0, 0, 0}},
      {1, 1, 256, {1}},
      {1, 2, 256, {1, 0}},
      {256, 2, 256, {256, 0}},
      {257, 2, 256, {256, 1}},
      {512, 2, 256, {256, 256}},
      {513, 2, 512, {512, 1}},
      {5 * 256, 4, 512, {512, 512, 256, 0}},
      {(1ull << 33) + 1, 2, (1ull << 32) + 256, {(1ull << 32) + 256, (1ull << 32) - 255}},
      {1ull << 63, 1, 1ull << 63, {1ull << 63}},
  };
  for (const ShardCase& one : cases) {
    SCOPED_TRACE(testing::Message() << one.elements << " elements, world " << one.world);
    EXPECT_EQ(shard_elements(one.elements, one.world), one.shard);
    std::vector<std::uint64_t> counts;
    for (std::uint32_t rank = 0; rank < one.world; ++rank) {
      counts.push_back(shard_of(one.elements, rank, one.world).count);
    }
    EXPECT_EQ(counts, one.counts);
  }
}

TEST(Shards, CoverEveryParameterOnceForAnyWorld) {
  for (std::uint32_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const std::uint64_t elements = random() >> (1 + random() % 63);
    const auto world = static_cast<std::uint32_t>(1 + random() % 300);
    std::uint64_t next = 0;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      const Range shard = shard_of(elements, rank, world);
      EXPECT_EQ(shard.first, next);
      EXPECT_TRUE(shard.count == 0 || shard.first % kGranule == 0);
      next += shard.count;
    }
    EXPECT_EQ(next, elements);
  }
}

TEST(Planes, AreThoseOfThePolicy) {
  EXPECT_THAT(
      planes_of(Policy::kBf16Split, AdamW{}, DType::kU8),
      ElementsAre(PlaneFormat{Plane::kWeight, DType::kBF16}, PlaneFormat{Plane::kResidual, DType::kI16},
                  PlaneFormat{Plane::kMoment1, DType::kF32}, PlaneFormat{Plane::kMoment2, DType::kF32}));
  EXPECT_THAT(planes_of(Policy::kFp32, AdamW{}, DType::kU8),
              ElementsAre(PlaneFormat{Plane::kWeight, DType::kF32}, PlaneFormat{Plane::kMoment1, DType::kF32},
                          PlaneFormat{Plane::kMoment2, DType::kF32}));
  EXPECT_THAT(planes_of(Policy::kFrozen, AdamW{}, DType::kU8),
              ElementsAre(PlaneFormat{Plane::kWeight, DType::kU8}));
}

TEST(Planes, OfARuleWithOneMomentLackTheOther) {
  const PlaneFormat weight{Plane::kWeight, DType::kBF16}, residual{Plane::kResidual, DType::kI16};
  const PlaneFormat code1{Plane::kMoment1, DType::kU8}, code2{Plane::kMoment2, DType::kU8};
  const PlaneFormat scale1{Plane::kScale1, DType::kF32, 256}, scale2{Plane::kScale2, DType::kF32, 256};
  EXPECT_THAT(planes_of(Policy::kMoments8, Adam{}, DType::kU8),
              ElementsAre(weight, residual, code1, code2, scale1, scale2));
  EXPECT_THAT(planes_of(Policy::kMoments8, Lion{}, DType::kU8), ElementsAre(weight, residual, code1, scale1));
  EXPECT_THAT(planes_of(Policy::kBf16Moments, Adagrad{}, DType::kU8),
              ElementsAre(weight, residual, PlaneFormat{Plane::kMoment2, DType::kBF16}));
  EXPECT_THAT(planes_of(Policy::kFp16Master, Sgd{}, DType::kU8),
              ElementsAre(PlaneFormat{Plane::kWeight, DType::kF16}, PlaneFormat{Plane::kMaster, DType::kF32},
                          PlaneFormat{Plane::kMoment1, DType::kF32}));
}

TEST(Planes, TakeTheBytesAnElementThatTheirPolicySays) {
  constexpr std::uint64_t kElements = 1 << 20;
  const auto bytes_of = [](Policy policy, const Optimizer& optimizer) {
    const std::vector<ParameterSpec> specs{
        {.name = "it", .elements = kElements, .policy = policy, .optimizer = optimizer}};
    const ElementLayout layout = built(specs, {.chunk_elements = 1 << 18, .grid_bytes = 4096});
    std::uint64_t bytes = 0;
    for (const ChunkLayout& chunk : layout.chunks()) bytes += chunk.record.bytes;
    return bytes;
  };
  const struct {
    Policy policy;
    std::uint64_t without_moments, of_a_moment;  // in 64ths of a byte an element
  } cases[] = {{Policy::kBf16Split, 256, 256},
               {Policy::kFp32, 256, 256},
               {Policy::kFp16Master, 384, 256},
               {Policy::kBf16Moments, 256, 128},
               {Policy::kMoments8, 256, 65}};
  for (const auto& one : cases) {
    SCOPED_TRACE(policy_name(one.policy));
    EXPECT_EQ(bytes_of(one.policy, AdamW{}), kElements * (one.without_moments + 2 * one.of_a_moment) / 64);
    EXPECT_EQ(bytes_of(one.policy, Adam{}), bytes_of(one.policy, AdamW{}));
    EXPECT_EQ(bytes_of(one.policy, Lion{}), kElements * (one.without_moments + one.of_a_moment) / 64);
    EXPECT_EQ(bytes_of(one.policy, Sgd{}), bytes_of(one.policy, Lion{}));
    if (one.policy != Policy::kMoments8) {
      EXPECT_EQ(bytes_of(one.policy, Adagrad{}), bytes_of(one.policy, Lion{}));
    }
  }
}

TEST(ElementLayout, RecordPlanesStartOnTheGrid) {
  const ElementLayout layout = built({parameter(kChunk + 100)});
  ASSERT_THAT(layout.chunks(), SizeIs(2));
  const ChunkLayout& full = layout.chunks()[0];
  EXPECT_EQ(full.elements, kChunk);
  EXPECT_THAT(full.record.plane_offsets, ElementsAre(0, 32768, 65536, 131072));
  EXPECT_EQ(full.record.bytes, 12u * kChunk);
  EXPECT_EQ(full.gradient_bytes, 4u * kChunk);
  // 100 elements take a granule: planes of 512, 512, 1024 and 1024 bytes, each on 4096.
  const ChunkLayout& last = layout.chunks()[1];
  EXPECT_EQ(last.elements, 256u);
  EXPECT_THAT(last.record.plane_offsets, ElementsAre(0, 4096, 8192, 12288));
  EXPECT_EQ(last.record.bytes, 16384u);
  EXPECT_EQ(last.gradient_bytes, 4096u);
}

TEST(ElementLayout, CoarserGridMovesPlanesApart) {
  const ElementLayout layout = built({parameter(1)}, {.chunk_elements = kChunk, .grid_bytes = 16384});
  EXPECT_THAT(layout.chunks()[0].record.plane_offsets, ElementsAre(0, 16384, 32768, 49152));
  EXPECT_EQ(layout.chunks()[0].record.bytes, 65536u);
}

TEST(ElementLayout, ChunkBoundaryInTheMiddleOfAParameter) {
  const ElementLayout layout = built({parameter(16000), parameter(1000)});
  // 16000 end at 16128 on the granule; 256 of the second fit the first chunk.
  ASSERT_THAT(layout.segments(), SizeIs(3));
  const Segment& head = layout.segments_of(0)[1];
  EXPECT_EQ(head.parameter, 1u);
  EXPECT_EQ(head.first, 0u);
  EXPECT_EQ(head.offset, 16128u);
  EXPECT_EQ(head.count, 256u);
  const Segment& tail = layout.segments_of(1)[0];
  EXPECT_EQ(tail.parameter, 1u);
  EXPECT_EQ(tail.first, 256u);
  EXPECT_EQ(tail.offset, 0u);
  EXPECT_EQ(tail.count, 744u);
  EXPECT_EQ(layout.chunks()[1].elements, 768u);
  ASSERT_THAT(layout.pieces_of(1), SizeIs(2));
  EXPECT_EQ(layout.pieces_of(1)[0].chunk, 0u);
  EXPECT_EQ(layout.pieces_of(1)[1].chunk, 1u);
}

TEST(ElementLayout, GapAfterAShardIsInNoSegment) {
  const ElementLayout layout = built({parameter(10), parameter(10)});
  ASSERT_THAT(layout.segments_of(0), SizeIs(2));
  EXPECT_EQ(layout.segments_of(0)[0].count, 10u);
  EXPECT_EQ(layout.segments_of(0)[1].offset, 256u);
  EXPECT_EQ(layout.chunks()[0].elements, 512u);
}

TEST(ElementLayout, SegmentsCountFromTheWholeParameter) {
  ParameterSpec spec = parameter(1000);
  spec.rank = 1;
  spec.world = 3;
  spec.group = 7;
  const ElementLayout layout = built({spec});
  ASSERT_THAT(layout.segments(), SizeIs(1));
  EXPECT_EQ(layout.segments()[0].first, 512u);
  EXPECT_EQ(layout.segments()[0].count, 488u);
  EXPECT_EQ(layout.segments()[0].group, 7u);
}

TEST(ElementLayout, NothingAndEmptyShardsHaveNoChunks) {
  EXPECT_THAT(built({}).chunks(), IsEmpty());
  ParameterSpec elsewhere = parameter(10);
  elsewhere.rank = 3;
  elsewhere.world = 4;
  const ElementLayout layout = built({parameter(0), elsewhere});
  EXPECT_THAT(layout.chunks(), IsEmpty());
  EXPECT_THAT(layout.segments(), IsEmpty());
  EXPECT_THAT(layout.pieces_of(0), IsEmpty());
  EXPECT_THAT(layout.pieces_of(1), IsEmpty());
  ASSERT_THAT(layout.classes(), SizeIs(1));
  EXPECT_EQ(layout.classes()[0].chunks, 0u);
}

TEST(ElementLayout, ClassesAgreeInPlanesDtypesAndGradientStorage) {
  std::vector<ParameterSpec> specs = {parameter(10),  // 0
                                      parameter(10, Policy::kFrozen),
                                      parameter(10, Policy::kFp32),  // 1, 2
                                      parameter(10),
                                      parameter(10, Policy::kFrozen),
                                      parameter(10, Policy::kFrozen)};  // 0, 3, 1
  specs[4].frozen_dtype = DType::kF32;
  specs.push_back(parameter(10));
  specs.back().gradient = GradientStorage::kBf16Once;  // 4
  specs.push_back(parameter(10));
  specs.back().frozen_dtype = DType::kU8;  // 0: not looked at in a stepped group
  const ElementLayout layout = built(specs);
  ASSERT_THAT(layout.classes(), SizeIs(5));
  std::vector<std::uint32_t> class_of;
  for (std::uint32_t i = 0; i < specs.size(); ++i) {
    class_of.push_back(layout.chunks()[layout.pieces_of(i)[0].chunk].class_index);
  }
  EXPECT_THAT(class_of, ElementsAre(0, 1, 2, 0, 3, 1, 4, 0));
  EXPECT_EQ(layout.classes()[0].gradient, DType::kF32);
  EXPECT_EQ(layout.classes()[1].gradient, std::nullopt);
  EXPECT_EQ(layout.classes()[1].policy, Policy::kFrozen);
  EXPECT_EQ(layout.classes()[4].gradient, DType::kBF16);
  EXPECT_EQ(layout.chunks()[1].gradient_bytes, 0u);
}

TEST(ElementLayout, ThousandsOfTinyParametersShareChunks) {
  const std::vector<ParameterSpec> specs(5000, parameter(1));
  const ElementLayout layout = built(specs);
  EXPECT_THAT(layout.chunks(), SizeIs(79));  // 64 granules a chunk
  EXPECT_THAT(layout.segments(), SizeIs(5000));
  EXPECT_EQ(layout.chunks().back().elements, 8u * 256);
}

TEST(ElementLayout, ElementsBeyond32BitsKeepTheirNumbers) {
  constexpr std::uint64_t kElements = (std::uint64_t{5} << 32) + 3;
  const ElementLayout layout = built({parameter(5), parameter(kElements)}, {.chunk_elements = 1u << 30});
  EXPECT_THAT(layout.chunks(), SizeIs(21));
  const auto pieces = layout.pieces_of(1);
  ASSERT_THAT(pieces, SizeIs(21));
  const Segment& last = layout.segments()[pieces.back().segment];
  EXPECT_EQ(last.first, (std::uint64_t{5} << 32) - 256);
  EXPECT_EQ(last.count, 259u);
  EXPECT_EQ(layout.chunks()[0].record.bytes, 12ull << 30);
  EXPECT_THAT(layout.chunks()[0].record.plane_offsets, ElementsAre(0, 2ull << 30, 4ull << 30, 8ull << 30));
}

TEST(ElementLayout, TooManyChunksAreRefusedBeforeAnyIsMade) {
  const std::vector<ParameterSpec> specs = {parameter(5), parameter(std::uint64_t{1} << 63)};
  for (const std::uint32_t chunk_elements : {kChunk, 1u << 30}) {
    const auto layout = ElementLayout::build(specs, {.chunk_elements = chunk_elements});
    ASSERT_EQ(layout.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(layout.status().message(), HasSubstr(specs[1].name));
  }
  // Many that are each possible alone.
  const std::vector<ParameterSpec> many(5, parameter(std::uint64_t{1} << 62));
  EXPECT_EQ(ElementLayout::build(many, {.chunk_elements = 1u << 30}).status().code(), Code::kInvalidArgument);
}

TEST(ElementLayout, RefusesOptionsAndSpecsOutOfRange) {
  const auto refused = [](ParameterSpec spec, LayoutOptions options) {
    return ElementLayout::build({&spec, 1}, options).status();
  };
  for (const std::uint32_t chunk_elements : {0u, 1u, 16383u, 16384u * 3 + 256, (1u << 30) + 16384}) {
    EXPECT_THAT(refused(parameter(1), {.chunk_elements = chunk_elements}).message(),
                HasSubstr("chunk_elements = " + std::to_string(chunk_elements)));
  }
  for (const std::uint32_t grid_bytes : {0u, 256u, 5000u, 1u << 21}) {
    EXPECT_THAT(refused(parameter(1), {.chunk_elements = kChunk, .grid_bytes = grid_bytes}).message(),
                HasSubstr("grid_bytes = " + std::to_string(grid_bytes)));
  }
  EXPECT_EQ(refused(parameter((1ull << 63) + 1), kSmall).code(), Code::kInvalidArgument);
  ParameterSpec outside = parameter(1);
  outside.rank = 2;
  outside.world = 2;
  EXPECT_THAT(refused(outside, kSmall).message(), HasSubstr("rank 2"));
  outside.world = 0;
  EXPECT_EQ(refused(outside, kSmall).code(), Code::kInvalidArgument);
}

TEST(ElementLayout, EveryOwnedElementLiesInOnePlace) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const auto world = static_cast<std::uint32_t>(1 + random() % 5);
    const auto rank = static_cast<std::uint32_t>(random() % world);
    std::vector<ParameterSpec> specs(random() % 30);
    for (ParameterSpec& spec : specs) {
      const Policy policies[] = {Policy::kBf16Split, Policy::kFp32, Policy::kFrozen};
      spec = parameter(random() % 3 == 0 ? random() % 300 : random() % 200'000, policies[random() % 3]);
      spec.rank = rank;
      spec.world = world;
    }
    const ElementLayout layout = built(specs);

    std::uint64_t in_pieces = 0;
    for (std::uint32_t i = 0; i < specs.size(); ++i) {
      const Range shard = shard_of(specs[i].elements, rank, world);
      std::uint64_t next = shard.first;
      for (const Piece& piece : layout.pieces_of(i)) {
        const Segment& segment = layout.segments()[piece.segment];
        EXPECT_EQ(segment.parameter, i);
        EXPECT_EQ(segment.first, next);
        next += segment.count;
        ++in_pieces;
        const auto of_chunk = layout.segments_of(piece.chunk);
        EXPECT_TRUE(of_chunk.data() <= &segment && &segment < of_chunk.data() + of_chunk.size());
      }
      EXPECT_EQ(next, shard.first + shard.count);
    }
    EXPECT_EQ(in_pieces, layout.segments().size());

    std::map<std::uint32_t, std::uint32_t> chunks_of_class;
    for (std::uint32_t chunk = 0; chunk < layout.chunks().size(); ++chunk) {
      const ChunkLayout& one = layout.chunks()[chunk];
      const ClassLayout& its_class = layout.classes()[one.class_index];
      EXPECT_EQ(chunk, its_class.first_chunk + chunks_of_class[one.class_index]++);
      const bool last = chunk + 1 == its_class.first_chunk + its_class.chunks;
      EXPECT_TRUE(last ? one.elements <= kChunk && one.elements % kGranule == 0 : one.elements == kChunk);
      std::uint32_t end = 0;
      for (const Segment& segment : layout.segments_of(chunk)) {
        EXPECT_EQ(segment.offset, end);  // only gaps shorter than a granule lie between
        EXPECT_GT(segment.count, 0u);
        end = (segment.offset + segment.count + kGranule - 1) / kGranule * kGranule;
      }
      EXPECT_EQ(end, one.elements);
    }
    for (std::uint32_t i = 0; i < layout.classes().size(); ++i) {
      EXPECT_EQ(chunks_of_class[i], layout.classes()[i].chunks);
    }
  }
}

}  // namespace
}  // namespace sluice::store
