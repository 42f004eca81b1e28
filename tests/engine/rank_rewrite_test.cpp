#include <array>
#include <atomic>
#include <cerrno>
#include <optional>

#include "engine/rank_commits.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::Rank;
using sim::RankCommitsTest;
using sim::Whole;
using testing::AnyOf;
using testing::HasSubstr;

/// Stores of several ranks that are opened by other worlds or in another shape.
class RankRewriteTest : public RankCommitsTest {
 protected:
  Result<io::SelectedBackend> open_backend(Rank& rank, const io::BackendOptions& options) override {
    Result<io::SelectedBackend> opened = RankCommitsTest::open_backend(rank, options);
    if (fault_ && rank.rank == 1) rank.drive->faults().add(*fault_);
    return opened;
  }
  /// A step and a commit of `world` ranks. Returns: the state.
  Whole make_committed(std::uint32_t world) {
    Whole whole = make_whole();
    std::mutex mutex;
    on_ranks(world, [&](Rank& rank) {
      train(rank, 1);
      EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 7), CommitMode::kWait), IsOk());
      std::lock_guard lock(mutex);
      rank.read_into(whole, tensors_);
    });
    return whole;
  }

  EngineOptions options_for(std::uint32_t rank) override {
    EngineOptions options = options_;
    if (rank == refuses_)
      options.accept = [](const Recovered&) { return Status(Code::kUnavailable, "not this one"); };
    return options;
  }

  std::optional<std::uint32_t> refuses_;
  std::optional<sim::Fault> fault_;  // of rank 1's drive, from the start
};

TEST_F(RankRewriteTest, UserBytesAreThoseOfTheOldRankThatComesRound) {
  (void)make_committed(3);
  std::uint32_t before = 3;
  for (const std::uint32_t world : {5U, 2U, 4U}) {
    std::array<std::uint32_t, 8> given{};
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      ASSERT_TRUE(report->recovered.has_value());
      given[rank.rank] = static_cast<std::uint32_t>(report->recovered->user_bytes[0]);
    });
    // Of ranks 0, 1, 2, then of 0, 1, 2, 0, 1, then of 0, 1.
    for (std::uint32_t rank = 0; rank < world; ++rank)
      EXPECT_EQ(given[rank], rank % before % 3) << "rank " << rank << " of " << world;
    before = world;
  }
}

TEST_F(RankRewriteTest, WhatOneRankDoesNotAcceptLeavesTheStoreToAll) {
  const Whole expected = make_committed(2);
  refuses_ = 1;
  for (const std::uint32_t world : {2U, 3U})
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      EXPECT_THAT(rank.engine->seal(), rank.rank == 1 ? testing::Matcher<const Result<SealReport>&>(Fails(
                                                            Code::kUnavailable, HasSubstr("not this one")))
                                                      : Fails(Code::kAborted, HasSubstr("rank 1")));
    });
  refuses_.reset();
  EXPECT_EQ(state(2), expected);
}

TEST_F(RankRewriteTest, AFailureOfOneRankLeavesTheOldStoreToAll) {
  tensors_ = {{"small", 10}, {"large", 40'000}};
  const Whole expected = make_committed(2);
  for (const io::Op op : {io::Op::kWrite, io::Op::kFlush})
    for (std::uint64_t skip = 0;; ++skip) {
      SCOPED_TRACE(std::to_string(skip));
      fault_ = sim::Fault{.op = op, .error = EIO, .skip = skip, .count = 1};
      std::atomic<std::uint32_t> sealed = 0;
      std::atomic<std::uint64_t> hits = 0;
      on_unsealed(3, [&](Rank& rank) {
        rank.parameters = add_all(*rank.engine);
        const Result<SealReport> report = rank.engine->seal();
        if (report.ok()) ++sealed;
        if (report.ok() && rank.rank == 1) hits = rank.drive->faults().hits();
      });
      fault_.reset();
      const bool failed = sealed == 0;
      EXPECT_TRUE(failed || sealed == 3) << "only some ranks have sealed";
      // Whatever is there, the old store or both, is gone on from.
      EXPECT_EQ(state(2), expected);
      if (HasFailure()) return;
      if (!failed && hits == 0) {
        EXPECT_GT(skip, 1U);
        break;
      }
    }
}

/// Pairs of ranks that share parameters among themselves alone, beside some that all share.
class PairsTest : public RankCommitsTest {
 protected:
  static constexpr std::uint32_t kWorld = 4;
  static constexpr std::uint64_t kElements = 40'000;

  void on_pairs(const std::function<void(Rank&)>& body, std::uint32_t world = kWorld) {
    std::vector<std::vector<std::shared_ptr<Communicator>>> pairs;
    for (std::uint32_t pair = 0; pair < (world + 1) / 2; ++pair)
      pairs.push_back(*make_in_process_communicators(2));
    on_unsealed(world, [&](Rank& rank) {
      const GroupId shared = *rank.engine->add_group({.name = "shared", .optimizer = sim::kShowsGradient});
      const GroupId own = *rank.engine->add_group({.name = "own",
                                                   .optimizer = sim::kShowsGradient,
                                                   .communicator = pairs[rank.rank / 2][rank.rank % 2]});
      for (const GroupId group : {shared, own})
        rank.parameters.push_back(*rank.engine->add_parameter({.name = group == shared ? "all" : "pair",
                                                               .shape = {dim(kElements)},
                                                               .group = group,
                                                               .initial = Normal{}}));
      body(rank);
    });
  }
  /// Each pair with gradients of its own.
  void train_pairs(Rank& rank) {
    Pass pass = rank.begin();
    for (std::size_t at = 0; at < 2; ++at) {
      const std::vector<float> values(kElements, at == 0 ? 0.5f : 1.0f + static_cast<float>(rank.rank / 2));
      const bool gives = at == 0 ? rank.rank == 0 : rank.rank % 2 == 0;
      rank.give(pass, at, gives ? &values : nullptr);
    }
    rank.step(pass);
  }
  /// Masters and first moments of what the rank owns.
  static std::vector<float> own_state(Rank& rank) {
    std::vector<float> all;
    for (std::size_t at = 0; at < 2; ++at) {
      const Range own = at == 0 ? store::shard_of(kElements, rank.rank, kWorld)
                                : store::shard_of(kElements, rank.rank % 2, 2);
      for (const View view : {View::kMaster, View::kMoment1}) {
        std::vector<float> values(own.count);
        EXPECT_THAT(rank.engine->read(rank.parameters[at], view, own, values.data(), DType::kF32), IsOk());
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }
};

TEST_F(PairsTest, KeepEveryBitInPlaceAndInOtherChunksAndCannotChangeTheWorld) {
  std::array<std::vector<float>, kWorld> expected;
  on_pairs([&](Rank& rank) {
    ASSERT_THAT(rank.engine->seal(), IsOk());
    train_pairs(rank);
    train_pairs(rank);
    EXPECT_THAT(rank.engine->commit({}, CommitMode::kWait), IsOk());
    expected[rank.rank] = own_state(rank);
  });
  ASSERT_NE(expected[0], expected[2]);
  for (const std::uint32_t chunk_elements : {sim::kRankChunk, 2 * sim::kRankChunk, sim::kRankChunk}) {
    const bool rewritten = chunk_elements != options_.chunk_elements;
    options_.chunk_elements = chunk_elements;
    on_pairs([&](Rank& rank) {
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      ASSERT_TRUE(report->recovered.has_value());
      EXPECT_EQ(report->recovered->rewritten, rewritten);
      EXPECT_EQ(own_state(rank), expected[rank.rank]);
    });
  }
  on_pairs(
      [&](Rank& rank) {
        EXPECT_THAT(rank.engine->seal(),
                    AnyOf(Fails(Code::kFailedPrecondition, HasSubstr("communicators of their own")),
                          Fails(Code::kAborted, HasSubstr("rank"))));
      },
      2);
  on_pairs([&](Rank& rank) {
    ASSERT_THAT(rank.engine->seal(), IsOk());
    EXPECT_EQ(own_state(rank), expected[rank.rank]);
  });
}

}  // namespace
}  // namespace sluice
