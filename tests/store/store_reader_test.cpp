#include "store/store_reader.hpp"

#include <gmock/gmock.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <random>

#include "store_reader_fixture.hpp"
#include "support/sim_world.hpp"

namespace sluice::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A model of any shapes around the boundaries of granules, tiles and chunks.
StoredWorld::Model random_model(std::mt19937_64& random) {
  StoredWorld::Model model;
  const std::size_t count = 1 + random() % 8;
  for (std::size_t index = 0; index < count; ++index) {
    StoredParameter parameter{.name = std::to_string(index),
                              .group = static_cast<std::uint32_t>(random() % policies().size())};
    const std::int64_t around[] = {0, 1, 256, 1024, 16384, 32768, 65536};
    parameter.shape = {std::max<std::int64_t>(0, around[random() % 7] + std::int64_t(random() % 5) - 2)};
    if (random() % 4 == 0) parameter.shape.push_back(3);
    constexpr std::uint8_t kOptimizers[] = {0, 3, 2, 4, 1, 0};
    parameter.policy = policies()[parameter.group];
    parameter.optimizer = kOptimizers[parameter.group];
    parameter.frozen_dtype = DType::kF64;
    model.parameters.push_back(parameter);
  }
  return model;
}

TEST_F(StoreReaderTest, EveryElementOfEveryWorldIsWhatWasStored) {
  const std::uint64_t seed = sim::seed_or(20261130);
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (std::uint32_t ranks = 1; ranks <= 4; ++ranks) {
    for (const std::uint32_t chunk_elements : {16384u, 32768u, 131072u}) {
      const sim::TemporaryDirectory directory;
      WorldOptions options{.world = ranks, .seed = random()};
      options.layout = {.chunk_elements = chunk_elements, .grid_bytes = 512u << random() % 6};
      options.drives = 1 + static_cast<std::uint32_t>(random() % 3);
      StoredWorld world(directory.path(), options);
      const StoredWorld::Model model = random_model(random);
      world.add_ranks(model);
      const auto reader = opened(world);
      ASSERT_NE(reader, nullptr);
      ASSERT_EQ(reader->parameters().size(), model.parameters.size());
      EXPECT_TRUE(verified(*reader).bad.empty());
      for (std::size_t index = 0; index < model.parameters.size(); ++index) {
        const StoredParameter& parameter = model.parameters[index];
        const ReadableParameter readable = reader->parameters()[index];
        EXPECT_EQ(readable.name, parameter.name);
        EXPECT_EQ(readable.shape, parameter.shape);
        EXPECT_EQ(readable.step_count, 1000 - index);
        for (const PlaneFormat& plane : readable.planes) {
          expect_equal(*reader, world, parameter, plane, {0, readable.elements});
          for (int i = 0; i < 6; ++i) {
            const std::uint64_t first = random() % (readable.elements + 1);
            expect_equal(*reader, world, parameter, plane,
                         {first, random() % (readable.elements - first + 1)});
          }
        }
      }
    }
  }
}

TEST_F(StoreReaderTest, TellsWhatTheCommitHolds) {
  StoredWorld stored = world({.world = 2, .drives = 2, .commit = 9});
  stored.add_ranks(small_model());
  const auto reader = opened(stored);
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->superblock().rank, 0u);
  EXPECT_EQ(reader->superblock().world, 2u);
  EXPECT_EQ(reader->commit(), 9u);
  EXPECT_EQ(reader->steps(), 1000u);
  EXPECT_EQ(reader->seed(), 77u);
  ASSERT_EQ(reader->groups().size(), 3u);
  EXPECT_EQ(reader->groups()[1].name, "group 1");
  EXPECT_EQ(std::get<AdamW>(reader->groups()[1].optimizer).lr, 0.25);
  EXPECT_EQ(reader->user_bytes(1), std::vector<std::byte>(2, std::byte{0x41}));
  EXPECT_EQ(reader->find("head"), reader->find("embedding"));
  EXPECT_EQ(reader->parameters()[0].aliases, std::vector<std::string>{"head"});
  EXPECT_EQ(reader->find("feet"), std::nullopt);
  EXPECT_EQ(reader->parameters()[3].planes, (std::vector<PlaneFormat>{{Plane::kWeight, DType::kU8}}));
  EXPECT_EQ(reader->parameters()[2].group, 0u);
  EXPECT_EQ(reader->parameters()[2].gradient, GradientStorage::kFp32);
  std::uint64_t bytes = 0;
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    for (const StoredChunk& chunk : stored.rank(rank).catalog.chunks)
      bytes += chunk.elements * (chunk.class_index == 2 ? 1u : 12u);
  EXPECT_EQ(reader->state_bytes(), bytes);
}

TEST_F(StoreReaderTest, ClosedReaderGivesItsRanksToTheNext) {
  StoredWorld stored = world({.world = 3, .drives = 2});
  stored.add_ranks(small_model());
  auto reader = opened(stored);
  const auto before = read(*reader, "out", Plane::kWeight, {0, 9000});
  std::vector<ExistingRank> ranks = StoreReader::close(std::move(reader));
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[2].rank, 2u);
  auto again = StoreReader::open(std::move(ranks), {.store_id = 0xabc, .commit = stored.options().commit});
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(*read(**again, "out", Plane::kWeight, {0, 9000}), *before);
}

TEST_F(StoreReaderTest, RanksOfOtherStoresAreLeftOut) {
  StoredWorld stored = world({.world = 2});
  StoredWorld other = world({.store_id = 0xdef, .commit = 1});
  stored.add_ranks(small_model());
  other.add_ranks({.parameters = {{.name = "else", .shape = {10}}}});
  EXPECT_EQ(opened(stored)->parameters().size(), 4u);
  EXPECT_EQ(opened(other)->parameters()[0].name, "else");
}

TEST_F(StoreReaderTest, RangeBeyondTheParameterAndPlaneItLacksAreRefused) {
  StoredWorld stored = world({});
  stored.add_ranks(small_model());
  const auto reader = opened(stored);
  std::byte nothing{};
  const std::uint32_t norm = reader->find("norm").value();
  EXPECT_EQ(reader->read(norm, Plane::kWeight, {700, 1}, &nothing).code(), Code::kInvalidArgument);
  EXPECT_EQ(reader->read(norm, Plane::kWeight, {1, ~std::uint64_t{0}}, &nothing).code(),
            Code::kInvalidArgument);
  EXPECT_THAT(reader->read(norm, Plane::kResidual, {0, 1}, &nothing).message(), HasSubstr("has no residual"));
  EXPECT_TRUE(reader->read(norm, Plane::kWeight, {700, 0}, &nothing).ok());
}

/// Two pairs of ranks, each pair with a communicator of its own: their experts share a name and nothing else.
StoredWorld::Model expert_model(std::uint32_t rank) {
  return {.parameters = {{.name = "shared", .shape = {1000}, .rank = rank, .world = 4},
                         {.name = "expert", .shape = {2000}, .group = 1, .rank = rank % 2, .world = 2}},
          .values = rank / 2};
}

TEST_F(StoreReaderTest, GroupsOfTheirOwnAreReadFromTheNearRankAlone) {
  StoredWorld stored = world({.world = 4});
  for (std::uint32_t rank = 0; rank < 4; ++rank) stored.add_rank(expert_model(rank));
  const StoredParameter expert = expert_model(0).parameters[1];
  for (std::uint32_t near = 0; near < 4; ++near) {
    const auto reader = opened(stored, near);
    const Range mine = shard_of(2000, near % 2, 2);
    expect_equal(*reader, stored, expert, {Plane::kMoment2, DType::kF32}, mine, near / 2);
    expect_equal(*reader, stored, expert, {Plane::kWeight, DType::kBF16}, {mine.first + 7, 11}, near / 2);
    const auto beyond = read(*reader, "expert", Plane::kWeight, {0, 2000});
    EXPECT_EQ(beyond.status().code(), Code::kFailedPrecondition);
    EXPECT_THAT(beyond.status().message(),
                AllOf(HasSubstr("\"expert\""), HasSubstr("rank " + std::to_string(near) + " holds " +
                                                         std::to_string(mine.count) + " from")));
    EXPECT_TRUE(verified(*reader).bad.empty());
  }
  const auto elsewhere = opened(stored, 4);  // a rank of a larger world
  EXPECT_EQ(read(*elsewhere, "expert", Plane::kWeight, {0, 1}).status().code(), Code::kFailedPrecondition);
}

TEST_F(StoreReaderTest, PartsThatOnlyOneGroupHasAreWholeOverItsRanks) {
  StoredWorld stored = world({.world = 3});
  for (std::uint32_t rank = 0; rank < 3; ++rank) {
    StoredWorld::Model model;
    if (rank == 0) model.parameters.push_back({.name = "front", .shape = {5000}});
    if (rank > 0) model.parameters.push_back({.name = "back", .shape = {5000}, .rank = 2 - rank, .world = 2});
    stored.add_rank(model);
  }
  const auto reader = opened(stored);
  ASSERT_EQ(reader->parameters().size(), 2u);
  for (const char* name : {"front", "back"}) {
    const StoredParameter parameter{.name = name, .shape = {5000}};
    expect_equal(*reader, stored, parameter, {Plane::kMoment1, DType::kF32}, {0, 5000});
  }
}

TEST_F(StoreReaderTest, OneNameOfTwoShapesIsWhatTheNearRankSays) {
  StoredWorld stored = world({.world = 2});
  for (std::uint32_t rank = 0; rank < 2; ++rank)
    stored.add_rank({.parameters = {{.name = "slice", .shape = {1000 + rank}}}, .values = rank});
  for (std::uint32_t near = 0; near < 2; ++near) {
    const auto reader = opened(stored, near);
    EXPECT_EQ(reader->parameters()[0].elements, 1000 + near);
    const StoredParameter slice{.name = "slice", .shape = {1000 + near}};
    expect_equal(*reader, stored, slice, {Plane::kWeight, DType::kBF16}, {0, 1000 + near}, near);
  }
}

/// Bytes that this process has read by system calls; nothing where the kernel does not count them.
std::optional<std::uint64_t> bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string word;
  std::uint64_t bytes = 0;
  while (file >> word >> bytes)
    if (word == "rchar:") return bytes;
  return std::nullopt;
}

TEST_F(StoreReaderTest, PlaneLargerThanTheBufferIsReadTwiceAtMost) {
  StoredWorld stored = world({.layout = {.chunk_elements = 1 << 22, .grid_bytes = 1 << 20}});
  StoredParameter vast{
      .name = "vast", .shape = {(5 << 19) + 333}, .policy = Policy::kFrozen, .frozen_dtype = DType::kF64};
  stored.add_ranks({.parameters = {vast}});
  const PlaneFormat plane{Plane::kWeight, DType::kF64};
  const std::uint64_t elements = (5 << 19) + 333;
  const std::uint64_t plane_bytes = elements * 8;
  (void)stored.values(vast, plane);
  for (const std::uint64_t step : {elements, std::uint64_t{100'000}, std::uint64_t{1000}}) {
    const auto reader = opened(stored);
    ASSERT_NE(reader, nullptr);
    const auto before = bytes_read();
    for (std::uint64_t first = 0; first < elements; first += step)
      expect_equal(*reader, stored, vast, plane, {first, std::min(step, elements - first)});
    const auto after = bytes_read();
    if (!before || !after) GTEST_SKIP() << "/proc/self/io is not there";
    EXPECT_LE(*after - *before, plane_bytes * 2 + 4 * (1 << 20)) << "in steps of " << step;
  }
}

TEST_F(StoreReaderTest, PlaneThatFitsTheBufferIsReadOnce) {
  StoredWorld stored = world({.layout = {.chunk_elements = 1 << 20, .grid_bytes = 4096}});
  const StoredParameter parameter{.name = "whole", .shape = {1 << 20}, .policy = Policy::kFp32};
  stored.add_ranks({.parameters = {parameter}});
  const auto reader = opened(stored);
  const auto before = bytes_read();
  for (std::uint64_t first = 0; first < 1 << 20; first += 5000)
    expect_equal(*reader, stored, parameter, {Plane::kMoment1, DType::kF32},
                 {first, std::min<std::uint64_t>(5000, (1 << 20) - first)});
  const auto after = bytes_read();
  if (!before || !after) GTEST_SKIP() << "/proc/self/io is not there";
  EXPECT_LE(*after - *before, (4u << 20) + 65536);
}

}  // namespace
}  // namespace sluice::store
