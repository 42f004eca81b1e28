#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "store/choice.hpp"
#include "support/sim_world.hpp"

namespace sluice::store {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t kOld = 0xaaa, kNew = 0xbbb;

/// A rank of a world of two that keeps two commits and has all its drives; the new store was made from the
/// old.
RankSummary rank(std::uint64_t store_id, std::uint32_t number, const std::vector<std::uint64_t>& commits,
                 std::uint32_t committed = 1) {
  RankSummary summary{.store_id = store_id,
                      .generation = store_id == kNew ? 5u : 4u,
                      .parent_store_id = store_id == kNew ? kOld : 0,
                      .rank = number,
                      .world = 2,
                      .keep_commits = 2,
                      .committed = committed,
                      .whole = 1,
                      .drives = 3,
                      .missing_drive = 3,
                      .held = static_cast<std::uint32_t>(commits.size())};
  std::ranges::copy(commits, summary.commits.begin());
  return summary;
}
RankSummary lacking(RankSummary summary, std::uint32_t drive) {
  summary.whole = 0;
  summary.missing_drive = drive;
  return summary;
}

std::optional<Choice> chosen(std::vector<RankSummary> summaries,
                             std::optional<std::uint64_t> wanted = std::nullopt) {
  const auto choice = choose_store(summaries, wanted);
  EXPECT_TRUE(choice.ok()) << choice.status().to_string();
  return choice.ok() ? *choice : std::nullopt;
}
Status refusal(std::vector<RankSummary> summaries, std::optional<std::uint64_t> wanted = std::nullopt) {
  return choose_store(summaries, wanted).status();
}

TEST(ChooseStore, NothingIsChosenWhereNothingWasCommitted) {
  EXPECT_EQ(chosen({}), std::nullopt);
  EXPECT_EQ(chosen({rank(kOld, 0, {}, 0), rank(kOld, 1, {}, 0)}), std::nullopt);
  RankSummary scratch = rank(kOld, 0, {}, 0);
  scratch.keep_commits = 0;
  EXPECT_EQ(chosen({scratch}), std::nullopt);
  EXPECT_EQ(chosen({RankSummary{.store_id = kOld}}), std::nullopt);
  EXPECT_EQ(chosen({lacking(rank(kOld, 0, {}, 0), 1)}), std::nullopt);
}

TEST(ChooseStore, FirstCommitThatOneRankLacksIsNone) {
  EXPECT_EQ(chosen({rank(kOld, 0, {1}, 0), rank(kOld, 1, {}, 0)}), std::nullopt);
}

TEST(ChooseStore, NewestCommitThatAllRanksHoldIsChosen) {
  const auto choice = chosen({rank(kOld, 0, {3, 4, 5}), rank(kOld, 1, {3, 4})});
  EXPECT_EQ(choice->store_id, kOld);
  EXPECT_EQ(choice->generation, 4u);
  EXPECT_EQ(choice->world, 2u);
  EXPECT_EQ(choice->commit, 4u);
  EXPECT_THAT(choice->kept, ElementsAre(3u, 4u));
}

TEST(ChooseStore, ANumberThatRanksUsedForDifferentStepsIsNoCommitOfAll) {
  std::vector<RankSummary> ranks{rank(kOld, 0, {3, 4}), rank(kOld, 1, {3, 4})};
  ranks[0].steps = {10, 11};
  ranks[1].steps = {10, 12};
  EXPECT_EQ(chosen(ranks)->commit, 3U);
  ranks[1].steps[0] = 9;
  EXPECT_EQ(refusal(ranks).code(), Code::kDataLoss);
}
TEST(ChooseStore, CommitCountsBeforeTheFlagDoes) {
  EXPECT_EQ(chosen({rank(kOld, 0, {1}, 0), rank(kOld, 1, {1}, 0)})->commit, 1u);
}

TEST(ChooseStore, SlotsOfCommitsBehindTheKeptOnesMayBeGivenOut) {
  const std::vector<RankSummary> summaries = {rank(kOld, 0, {3, 4, 5}), rank(kOld, 1, {3, 4, 5})};
  EXPECT_THAT(chosen(summaries)->kept, ElementsAre(4u, 5u));
  EXPECT_THAT(chosen(summaries, 4)->kept, ElementsAre(4u));
  const Status status = refusal(summaries, 3);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("commit 3 is not there"), HasSubstr("holds 4, 5")));
}

TEST(ChooseStore, WantedWhereThereIsNoneIsNotFound) {
  EXPECT_EQ(refusal({}, 3).code(), Code::kNotFound);
  EXPECT_THAT(refusal({}, 3).message(), HasSubstr("commit 3"));
}

TEST(ChooseStore, RankThatIsMissingIsNamed) {
  const Status status = refusal({rank(kOld, 1, {3, 4})});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("store 0000000000000aaa (generation 4, world 2)"),
                                      HasSubstr("rank 0 is in none of the directories")));
}

TEST(ChooseStore, ManyMissingRanksAreCutShort) {
  RankSummary one = rank(kOld, 3, {1});
  one.world = 4000000000;
  const std::string message = refusal({one}).message();
  EXPECT_THAT(message, AllOf(HasSubstr("rank 0 is"), HasSubstr("rank 8 is"), HasSubstr("and more")));
  EXPECT_THAT(message, testing::Not(HasSubstr("rank 9 is")));
}

TEST(ChooseStore, DriveThatIsMissingIsNamed) {
  const Status status = refusal({rank(kOld, 0, {3, 4}), lacking(rank(kOld, 1, {3, 4}), 2)});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 lacks drive 2 of 3"));
}

TEST(ChooseStore, RankWithoutAWholeCommitIsNamed) {
  const Status status = refusal({rank(kOld, 0, {3, 4}), rank(kOld, 1, {})});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 holds no whole commit"));
}

TEST(ChooseStore, RanksThatHoldOtherCommitsAreNamedWithThem) {
  const Status status = refusal({rank(kOld, 0, {3, 4}), rank(kOld, 1, {5})});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("rank 0 holds 3, 4"), HasSubstr("rank 1 holds 5")));
}

TEST(ChooseStore, CommitBesideAMissingPartIsNotThrownAway) {
  EXPECT_EQ(refusal({rank(kOld, 0, {1}, 0)}).code(), Code::kDataLoss);
  EXPECT_EQ(refusal({rank(kOld, 0, {1}, 0), lacking(rank(kOld, 1, {}, 0), 1)}).code(), Code::kDataLoss);
}

TEST(ChooseStore, OfARewritingPairTheNewerIsChosenOnceAllItsRanksCommitted) {
  const RankSummary old0 = rank(kOld, 0, {3, 4}), old1 = rank(kOld, 1, {3, 4});
  EXPECT_EQ(chosen({old0, old1, rank(kNew, 0, {4}, 0), rank(kNew, 1, {4}, 0)})->store_id, kNew);
  EXPECT_EQ(chosen({old0, old1, rank(kNew, 0, {4}, 0), rank(kNew, 1, {}, 0)})->store_id, kOld);
  EXPECT_EQ(chosen({old0, old1, rank(kNew, 0, {}, 0)})->store_id, kOld);
  EXPECT_EQ(chosen({old0, old1, RankSummary{.store_id = kNew}})->store_id, kOld);
}

TEST(ChooseStore, RemovalThatWasCutShortIsNoLoss) {
  const RankSummary new0 = rank(kNew, 0, {4}), new1 = rank(kNew, 1, {4});
  EXPECT_EQ(chosen({new0, new1, rank(kOld, 1, {3, 4})})->store_id, kNew);
  EXPECT_EQ(chosen({new0, new1, lacking(rank(kOld, 1, {3, 4}), 0)})->store_id, kNew);
  // Of a newer one that was never whole.
  EXPECT_EQ(chosen({rank(kOld, 0, {3}), rank(kOld, 1, {3}), rank(kNew, 1, {3}, 0)})->store_id, kOld);
}

TEST(ChooseStore, NewerStoreThatWasCommittedIsNotPassedOver) {
  const Status status = refusal({rank(kOld, 0, {3}), rank(kOld, 1, {3}), rank(kNew, 0, {7})});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("store 0000000000000bbb"), HasSubstr("rank 1 is in none")));
}

TEST(ChooseStore, StoresOfWhichNeitherWasMadeFromTheOtherAreNotChosenFrom) {
  const RankSummary old0 = rank(kOld, 0, {3}), old1 = rank(kOld, 1, {3});
  const auto unrelated = [](RankSummary summary, std::uint64_t generation) {
    summary.parent_store_id = 0xccc;
    summary.generation = generation;
    return summary;
  };
  for (const std::uint64_t generation : {1u, 4u, 9u}) {
    SCOPED_TRACE(testing::Message() << "generation " << generation);
    const RankSummary other0 = unrelated(rank(kNew, 0, {9}), generation);
    const RankSummary other1 = unrelated(rank(kNew, 1, {9}), generation);
    RankSummary lost = other1;
    lost.held = 0;
    RankSummary unmarked0 = other0;
    unmarked0.committed = 0;
    for (const std::vector<RankSummary>& others :
         {std::vector{other0, other1}, std::vector{other0}, std::vector{lost},
          std::vector{lacking(other1, 1)}, std::vector{unmarked0}}) {
      std::vector<RankSummary> summaries = {old0, old1};
      summaries.insert(summaries.end(), others.begin(), others.end());
      const Status status = refusal(summaries);
      EXPECT_EQ(status.code(), Code::kFailedPrecondition);
      EXPECT_THAT(status.message(), AllOf(HasSubstr("0000000000000aaa"), HasSubstr("0000000000000bbb"),
                                          HasSubstr("neither was made from the other")));
    }
    RankSummary unfinished0 = other0, unfinished1 = other1;
    unfinished0.committed = unfinished1.committed = 0;
    unfinished1.held = 0;
    EXPECT_EQ(chosen({old0, old1, unfinished0, unfinished1})->store_id, kOld) << "never committed to";
  }
}

TEST(ChooseStore, OnlyTheParentItselfStandsBackForWhatWasMadeFromIt) {
  RankSummary grandparent = rank(0xccc, 0, {2});
  grandparent.world = 1;
  grandparent.generation = 3;
  RankSummary old0 = rank(kOld, 0, {3}), old1 = rank(kOld, 1, {3});
  old0.parent_store_id = old1.parent_store_id = 0xccc;
  const RankSummary new0 = rank(kNew, 0, {4}), new1 = rank(kNew, 1, {4});
  EXPECT_EQ(chosen({old0, old1, grandparent})->store_id, kOld);
  EXPECT_EQ(chosen({old0, old1, new0, new1})->store_id, kNew);
  EXPECT_EQ(refusal({old0, old1, new0, new1, grandparent}).code(), Code::kFailedPrecondition);
}

TEST(ChooseStore, StoresThatNameEachOtherAsParentAreNotChosenFrom) {
  RankSummary old0 = rank(kOld, 0, {3}), old1 = rank(kOld, 1, {3});
  old0.parent_store_id = old1.parent_store_id = kNew;
  RankSummary new0 = rank(kNew, 0, {4}), new1 = rank(kNew, 1, {4});
  new0.generation = new1.generation = old0.generation;
  EXPECT_EQ(refusal({old0, old1, new0, new1}).code(), Code::kFailedPrecondition);
}

TEST(ChooseStore, RankThatCallsACommittedStoreScratchDoesNotHideIt) {
  RankSummary scratch = rank(kOld, 0, {}, 0);
  scratch.keep_commits = 0;
  const Status status = refusal({scratch, rank(kOld, 1, {3})});
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("rank 1 says world 2, keep_commits 2"));
}

TEST(ChooseStore, RanksThatContradictEachOtherAreNamed) {
  RankSummary second = rank(kOld, 1, {3});
  second.world = 3;
  EXPECT_THAT(refusal({rank(kOld, 0, {3}), second}).message(), HasSubstr("rank 1 says world 3"));
  second = rank(kOld, 1, {3});
  second.parent_store_id = 0xccc;
  EXPECT_THAT(refusal({rank(kOld, 0, {3}), second}).message(), HasSubstr("parent 0000000000000ccc"));
  EXPECT_THAT(refusal({rank(kOld, 0, {3}), rank(kOld, 0, {3}), rank(kOld, 1, {3})}).message(),
              HasSubstr("rank 0 is found twice"));
}

TEST(ChooseStore, EveryRankDecidesTheSameWhateverTheOrder) {
  for (std::uint64_t round = 0; round < 300; ++round) {
    const std::uint64_t seed = sim::seed_or(round);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<RankSummary> summaries;
    for (const std::uint64_t store_id : {kOld, kNew}) {
      for (std::uint32_t number = 0; number < 2; ++number) {
        std::vector<std::uint64_t> commits;
        for (std::uint64_t commit = 1; commit < 5; ++commit) {
          if (random() % 4 != 0) commits.push_back(commit);
        }
        if (random() % 8 != 0) summaries.push_back(rank(store_id, number, commits, random() % 2));
        if (!summaries.empty() && random() % 8 == 0) summaries.back() = lacking(summaries.back(), 1);
      }
    }
    std::optional<std::uint64_t> wanted;
    if (random() % 2 == 0) wanted = 1 + random() % 5;
    const auto told = [&] {
      const auto choice = choose_store(summaries, wanted);
      if (!choice.ok()) return choice.status().to_string();
      if (!*choice) return std::string("nothing");
      return testing::PrintToString(std::pair((*choice)->store_id, (*choice)->kept));
    };
    const std::string first = told();
    for (int shuffles = 0; shuffles < 5; ++shuffles) {
      std::ranges::shuffle(summaries, random);
      EXPECT_EQ(told(), first);
    }
  }
}

}  // namespace
}  // namespace sluice::store
