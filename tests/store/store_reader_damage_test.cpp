#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "store/store_reader.hpp"
#include "store_reader_fixture.hpp"

namespace sluice::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST_F(StoreReaderTest, BitFlippedInAnyPlaneIsNamedWithParameterAndRange) {
  StoredWorld stored = world({.world = 2, .drives = 2});
  stored.add_ranks(model_of_all_policies());
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    const ElementLayout& layout = stored.rank(rank).layout;
    for (std::uint32_t chunk = 0; chunk < layout.chunks().size(); ++chunk) {
      const std::vector<PlaneFormat>& planes = layout.classes()[layout.chunks()[chunk].class_index].planes;
      for (std::size_t plane = 0; plane < planes.size(); ++plane) {
        SCOPED_TRACE("rank " + std::to_string(rank) + " chunk " + std::to_string(chunk) + " plane " +
                     std::to_string(plane));
        const std::uint32_t drive = stored.rank(rank).record.chunks[chunk].place.drive;
        const std::uint64_t offset = stored.plane_offset(rank, chunk, plane) +
                                     planes[plane].bytes(layout.chunks()[chunk].elements) - 1;
        stored.flip(rank, drive, offset);
        const auto reader = opened(stored);
        ASSERT_NE(reader, nullptr);
        const auto segments = layout.segments_of(chunk);
        const Verdict verdict = verified(*reader);
        ASSERT_EQ(verdict.bad.size(), segments.size());
        std::set<std::string> hit;
        for (std::size_t at = 0; at < segments.size(); ++at) {
          const BadPlane& bad = verdict.bad[at];
          EXPECT_EQ(bad.parameter, model_of_all_policies().parameters[segments[at].parameter].name);
          EXPECT_EQ(bad.range.first, segments[at].first);
          EXPECT_EQ(bad.range.count, segments[at].count);
          EXPECT_EQ(bad.plane, planes[plane].plane);
          EXPECT_EQ(bad.rank, rank);
          EXPECT_EQ(bad.chunk, chunk);
          EXPECT_EQ(bad.drive, stored.container(rank, drive));
          EXPECT_EQ(bad.status.code(), Code::kDataLoss);
          hit.insert(bad.parameter);
          const auto bytes = read(*reader, bad.parameter, bad.plane, bad.range);
          EXPECT_EQ(bytes.status().code(), Code::kDataLoss);
          EXPECT_THAT(
              bytes.status().message(),
              AllOf(HasSubstr("\"" + bad.parameter + "\""), HasSubstr(plane_name(bad.plane).data()),
                    HasSubstr("elements " + std::to_string(bad.range.first) + " to"), HasSubstr(bad.drive)));
        }
        for (const StoredParameter& parameter : model_of_all_policies().parameters) {
          const std::uint32_t index = reader->find(parameter.name).value();
          const ReadableParameter readable = reader->parameters()[index];
          for (const PlaneFormat& format : readable.planes) {
            if (hit.contains(parameter.name) && format == planes[plane]) continue;
            expect_equal(*reader, stored, parameter, format, {0, readable.elements});
          }
        }
        stored.flip(rank, drive, offset);
      }
    }
  }
}

TEST_F(StoreReaderTest, BytesBetweenPlanesAreInNoChecksum) {
  StoredWorld stored = world({});
  stored.add_ranks({.parameters = {{.name = "short", .shape = {300}}}});
  stored.flip(0, 0, stored.plane_offset(0, 0, 0) + 512 * 2);  // behind the last element and its gap
  EXPECT_TRUE(verified(*opened(stored)).bad.empty());
  stored.flip(0, 0, stored.plane_offset(0, 0, 0) + 511 * 2);  // the gap itself
  EXPECT_EQ(verified(*opened(stored)).bad.size(), 1u);
}

TEST_F(StoreReaderTest, MissingRankIsNamed) {
  StoredWorld stored = world({.world = 3});
  stored.add_ranks(small_model());
  std::filesystem::remove_all(std::filesystem::path(stored.container(1, 0)).parent_path());
  const Status status = try_open(stored).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 of 3 of store 0000000000000abc is in none"));
  std::filesystem::remove_all(std::filesystem::path(stored.container(2, 0)).parent_path());
  EXPECT_THAT(try_open(stored).status().message(), HasSubstr("rank 1 of 3"));
  EXPECT_THAT(StoreReader::open({}, {.store_id = 0xabc, .commit = 5}).status().message(),
              HasSubstr("rank 0 of 1 of store 0000000000000abc is in none"));
}

TEST_F(StoreReaderTest, MissingDriveIsNamed) {
  StoredWorld stored = world({.world = 2, .drives = 2});
  stored.add_ranks(small_model());
  std::filesystem::remove(stored.container(1, 1));
  const Status status = try_open(stored).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("drive 1 of 2")));
}

TEST_F(StoreReaderTest, CommitThatARankDoesNotHoldIsNamedWithThoseItDoes) {
  StoredWorld stored = world({.world = 2});
  stored.add_ranks(small_model());
  const auto refused = [&](std::uint64_t commit) {
    return StoreReader::open(stored.find(), {.store_id = 0xabc, .commit = commit}).status();
  };
  EXPECT_EQ(refused(6).code(), Code::kDataLoss);
  EXPECT_THAT(refused(6).message(), AllOf(HasSubstr("rank 0 of 2"), HasSubstr("commits 5, not 6")));
  const Superblock& superblock = stored.rank(1).superblocks[0];
  stored.flip(1, 0, superblock.places_offset + superblock.place_bytes + 120);
  EXPECT_THAT(refused(5).message(), AllOf(HasSubstr("rank 1 of 2"), HasSubstr("holds no commit")));
}

TEST_F(StoreReaderTest, RanksThatDisagreeInTheirStepsAreRefused) {
  StoredWorld stored = world({.world = 2});
  stored.add_ranks(small_model());
  std::vector<ExistingRank> ranks = stored.find();
  ranks[1].commits[0].record.steps = 7;
  const Status status = StoreReader::open(std::move(ranks), {.store_id = 0xabc, .commit = 5}).status();
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 had finished 1000 steps, rank 1 7"));
}

TEST_F(StoreReaderTest, TablesThatDoNotAgreeWithEachOtherAreRefused) {
  StoredWorld stored = world({});
  stored.add_ranks(small_model());
  const auto refused = [&](auto change) {
    std::vector<ExistingRank> ranks = stored.find();
    change(ranks[0]);
    return StoreReader::open(std::move(ranks), {.store_id = 0xabc, .commit = 5}).status();
  };
  EXPECT_THAT(refused([](ExistingRank& r) { r.superblock->chunk_elements = 32768; }).message(),
              AllOf(HasSubstr("rank 0 of 1"), HasSubstr("chunk_elements = 32768")));
  EXPECT_THAT(refused([](ExistingRank& r) { r.catalog.chunks[0].drive = 3; }).message(),
              HasSubstr("drive 3"));
  EXPECT_THAT(refused([](ExistingRank& r) { r.commits[0].record.chunks.pop_back(); }).message(),
              HasSubstr("its store"));
  EXPECT_THAT(refused([](ExistingRank& r) { r.commits[0].record.chunks[0].place.offset = 0; }).message(),
              HasSubstr("chunk 0 on drive 0 at 0"));
}

TEST_F(StoreReaderTest, FileThatChangesAfterItWasVerifiedIsNoticed) {
  StoredWorld stored = world({.layout = {.chunk_elements = 1 << 21, .grid_bytes = 4096}});
  stored.add_ranks({.parameters = {{.name = "vast", .shape = {1 << 21}, .policy = Policy::kFp32}}});
  const auto reader = opened(stored);
  ASSERT_TRUE(read(*reader, "vast", Plane::kMoment1, {1 << 20, 5}).ok());
  ASSERT_TRUE(read(*reader, "vast", Plane::kMoment2, {1 << 20, 5}).ok());  // the buffer holds this one
  stored.flip(0, 0, stored.plane_offset(0, 0, 1) + 40);
  EXPECT_TRUE(read(*reader, "vast", Plane::kMoment1, {16384, 5}).ok()) << "another tile";
  const auto bytes = read(*reader, "vast", Plane::kMoment1, {0, 1});
  EXPECT_EQ(bytes.status().code(), Code::kDataLoss);
  EXPECT_THAT(bytes.status().message(), HasSubstr("elements 0 to 16383 of the plane"));
}

TEST_F(StoreReaderTest, FileCutShortIsABadPlaneAndNoMore) {
  StoredWorld stored = world({.drives = 2});
  stored.add_ranks(small_model());
  const auto reader = opened(stored);
  std::filesystem::resize_file(stored.container(0, 1), stored.rank(0).superblocks[1].slots_offset);
  const Verdict verdict = verified(*reader);
  EXPECT_FALSE(verdict.bad.empty());
  for (const BadPlane& bad : verdict.bad) {
    EXPECT_EQ(bad.drive, stored.container(0, 1));
    EXPECT_EQ(bad.status.code(), Code::kDataLoss);
  }
  expect_equal(*reader, stored, small_model().parameters[0], {Plane::kWeight, DType::kBF16}, {0, 16384});
}

TEST_F(StoreReaderTest, VerifyEndsWhenProgressSaysSoAndLeavesTheReaderUsable) {
  StoredWorld stored = world({.layout = {.chunk_elements = 1 << 22, .grid_bytes = 4096}});
  stored.add_ranks({.parameters = {{.name = "vast", .shape = {3 << 20}, .policy = Policy::kFp32}}});
  const StoredParameter vast{.name = "vast", .shape = {3 << 20}, .policy = Policy::kFp32};
  const auto reader = opened(stored);
  expect_equal(*reader, stored, vast, {Plane::kWeight, DType::kF32}, {3, 5});
  stored.flip(0, 0, stored.plane_offset(0, 0, 0) + 12);
  std::uint64_t heard = 0;
  const Status status = reader->verify([](const BadPlane&) {},
                                       [&](std::uint64_t bytes) {
                                         heard = bytes;
                                         return Status(Code::kAborted, "enough");
                                       });
  EXPECT_EQ(status.code(), Code::kAborted);
  EXPECT_EQ(heard, kReaderBytes) << "in the middle of the first plane";
  EXPECT_EQ(read(*reader, "vast", Plane::kWeight, {3, 5}).status().code(), Code::kDataLoss)
      << "what verify left in the buffer was compared with nothing";
  stored.flip(0, 0, stored.plane_offset(0, 0, 0) + 12);
  expect_equal(*reader, stored, vast, {Plane::kWeight, DType::kF32}, {3, 5});
}

}  // namespace
}  // namespace sluice::store
