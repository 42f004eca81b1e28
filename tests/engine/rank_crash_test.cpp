#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <optional>

#include "engine/rank_commits.hpp"
#include "support/after_crash.hpp"
#include "support/outage.hpp"

namespace sluice {
namespace {

using sim::Crash;
using sim::IsOk;
using sim::Outage;
using sim::Rank;
using sim::Whole;

constexpr std::uint32_t kWorld = 2;
constexpr std::uint64_t kCommits = 3;

enum class Budget { kAll, kLeast };
enum class Start { kNothing, kStoreOfAnotherWorld };

struct Case {
  Crash kind;
  Outage::Hits hits;
  Undo undo;
  std::uint32_t keep_commits;
  Budget budget;
  Start start;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& of = info.param;
  return fmt::format("{}{}Undo{}Keep{}{}{}", of.kind == Crash::kPowerLost ? "Power" : "Kill",
                     of.hits == Outage::Hits::kAll ? "All" : "One", of.undo == Undo::kOn ? "On" : "Off",
                     of.keep_commits, of.budget == Budget::kAll ? "" : "Least",
                     of.start == Start::kNothing ? "" : "Rewrite");
}

/// Ranks that train and commit until their drives stop at one request, and the ranks that go on from what is left.
class RankOutage : public sim::RankCommitsTest, public testing::WithParamInterface<Case> {
 protected:
  RankOutage() {
    tensors_ = {{"small", 10}, {"large", 40'000}, {"fp32", 300, {.policy = Policy::kFp32}}};
    options_.undo = GetParam().undo;
    options_.keep_commits = GetParam().keep_commits;
  }

  Result<io::SelectedBackend> open_backend(Rank& rank, const io::BackendOptions&) override {
    return io::SelectedBackend{
        .backend = std::make_unique<sim::OutageDrive>(*outage_, rank.rank, sim::seed_or(1) * 2 + rank.rank),
        .kind = io::BackendKind::kThreads,
        .fallback_reason = {}};
  }
  EngineOptions options_for(std::uint32_t rank) override {
    EngineOptions options = options_;
    if (GetParam().budget == Budget::kLeast && world_ == kWorld)
      options.host_budget_bytes = least_host_bytes_[rank];
    return options;
  }

  bool try_to_train(Rank& rank, std::uint64_t salt) {
    Result<Pass> pass = rank.engine->begin_step();
    if (!pass.ok()) return false;
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      const std::vector<float> values = gradient(tensors_[at], salt);
      if (!pass->add_gradient(rank.parameters[at],
                              rank.rank == 0 ? Gradient::f32(values.data()) : Gradient::none())
               .ok())
        return false;
    }
    return pass->step().ok();
  }

  /// Trains and commits from commit `first` on. `seen` after each commit, if anybody looks.
  void live(Rank& rank, std::uint64_t first, const std::function<void(std::uint64_t number)>& seen = {}) {
    rank.parameters = add_all(*rank.engine);
    if (!rank.engine->seal().ok()) return;
    for (std::uint64_t number = first; number <= kCommits; ++number) {
      if (!try_to_train(rank, number)) return;
      const auto bytes = user_bytes(rank.rank, static_cast<std::uint8_t>(number));
      if (!rank.engine->commit(bytes, CommitMode::kWait).ok()) return;
      durable_ = std::max(durable_.load(), number);
      if (seen) seen(number);
    }
  }

  /// The state of every commit, of ranks that nothing happens to; also what the least budgets are, and the store
  /// that the ranks start with.
  void live_undisturbed() {
    Outage never({});
    outage_ = &never;
    std::mutex mutex;
    const auto look = [&](Rank& rank, std::uint64_t number) {
      std::lock_guard lock(mutex);
      rank.read_into(committed_[number], tensors_);
    };
    committed_.assign(kCommits + 1, make_whole());
    std::array<std::uint64_t, kWorld> least{};
    on_unsealed(kWorld, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> sealed = rank.engine->seal();
      ASSERT_THAT(sealed, IsOk());
      least[rank.rank] = sealed->least_host_bytes;
    });
    const sim::TemporaryDirectory whole(sim::Beneath::kMemory);
    options_.directories = {whole.path()};
    on_unsealed(kWorld,
                [&](Rank& rank) { live(rank, 1, [&](std::uint64_t number) { look(rank, number); }); });
    ASSERT_EQ(durable_, kCommits);
    if (GetParam().start == Start::kStoreOfAnotherWorld) {
      options_.directories = {start_.path()};
      world_ = kWorld + 1;
      on_unsealed(kWorld + 1, [&](Rank& rank) {
        rank.parameters = add_all(*rank.engine);
        ASSERT_THAT(rank.engine->seal(), IsOk());
        ASSERT_TRUE(try_to_train(rank, 1));
        EXPECT_THAT(rank.engine->commit(user_bytes(rank.rank, 1), CommitMode::kWait), IsOk());
      });
      world_ = kWorld;
      durable_ = first_ = 1;
    } else {
      durable_ = first_ = 0;
    }
    least_host_bytes_ = least;
  }

  /// The same ranks, whose drives stop at `request`, and what they leave in `dead`.
  /// Returns: whether they got that far.
  bool live_until(std::uint64_t request, const std::string& dead) {
    const sim::TemporaryDirectory directory(sim::Beneath::kMemory);
    sim::copy_after_crash(start_.path(), directory.path());
    options_.directories = {directory.path()};
    durable_ = first_;
    const bool all = GetParam().hits == Outage::Hits::kAll;
    const auto leave = [&] { sim::copy_after_crash(directory.path(), dead); };
    Outage outage({.request = request,
                   .kind = GetParam().kind,
                   .hits = GetParam().hits,
                   .drive = static_cast<std::uint32_t>(request % kWorld),
                   .meanwhile = all ? std::function<void()>(leave) : nullptr});
    outage_ = &outage;
    std::barrier over(kWorld);
    on_unsealed(kWorld, [&](Rank& rank) {
      live(rank, first_ + 1);
      over.arrive_and_wait();
      if (!all && rank.rank == 0) {
        outage.strike_all();
        leave();
      }
      over.arrive_and_wait();
    });
    return outage.has_struck();
  }

  /// Goes on from a copy of `dead` with `world` ranks; `wanted` 0: from the newest commit. Then trains without a commit
  /// until all are killed: `again` is what that leaves.
  /// Returns: its number, 0 for none.
  std::uint64_t go_on(const std::string& dead, std::uint32_t world, std::uint64_t wanted,
                      const std::string& again) {
    Outage killed({});
    outage_ = &killed;
    const sim::TemporaryDirectory directory(sim::Beneath::kMemory);
    sim::copy_after_crash(dead, directory.path());
    options_.directories = {directory.path()};
    options_.recover_commit = wanted;
    world_ = world;
    Whole whole = make_whole();
    std::mutex mutex;
    std::uint64_t number = 0;
    std::barrier over(world);
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      EXPECT_THAT(report, IsOk());
      if (!report.ok()) return over.arrive_and_drop();
      {
        std::lock_guard lock(mutex);
        rank.read_into(whole, tensors_);
        if (report->recovered) {
          number = report->recovered->commit;
          EXPECT_EQ(report->recovered->user_bytes[1], static_cast<std::byte>(number));
        }
      }
      EXPECT_TRUE(try_to_train(rank, 50));
      over.arrive_and_wait();
      if (rank.rank == 0) {
        killed.strike_all();
        sim::copy_after_crash(directory.path(), again);
      }
      over.arrive_and_wait();
    });
    options_.recover_commit = 0;
    world_ = kWorld;
    if (number > 0 && number <= kCommits) {
      EXPECT_EQ(whole, committed_[number]) << "commit " << number;
    }
    return number;
  }

  Outage* outage_ = nullptr;
  std::uint32_t world_ = kWorld;  // of the ranks under way
  std::array<std::uint64_t, kWorld> least_host_bytes_{kUnlimited, kUnlimited};
  std::vector<Whole> committed_;  // by number
  const sim::TemporaryDirectory start_{sim::Beneath::kMemory};
  std::uint64_t first_ = 0;  // the commit that the ranks start from
  std::atomic<std::uint64_t> durable_ = 0;
};

TEST_P(RankOutage, AtAnyRequestLeavesTheLastCommitOrALaterOneWhole) {
  live_undisturbed();
  if (HasFailure()) return;
  bool struck = true;
  for (std::uint64_t request = 1; struck; ++request) {
    SCOPED_TRACE(fmt::format("at request {}, SLUICE_TEST_SEED={}", request, sim::seed_or(1)));
    const sim::TemporaryDirectory dead(sim::Beneath::kMemory);
    struck = live_until(request, dead.path());
    if (!struck && GetParam().hits == Outage::Hits::kAll) break;
    const std::uint32_t world = GetParam().start == Start::kNothing || request % 2 == 0 ? kWorld : kWorld + 1;
    const sim::TemporaryDirectory again(sim::Beneath::kMemory), last(sim::Beneath::kMemory);
    const std::uint64_t number = go_on(dead.path(), world, 0, again.path());
    EXPECT_GE(number, durable_);
    EXPECT_LE(number, durable_ + 1);
    // What was not gone on from is no commit any more, whatever its slots hold now.
    // A store that was rewritten for another world has the one commit.
    const bool older = GetParam().keep_commits > 1 && number > first_ + 1 && world == kWorld;
    const std::uint64_t wanted = older ? number - 1 : 0;
    EXPECT_EQ(go_on(again.path(), world, wanted, last.path()), older ? wanted : number);
    if (older) {
      const sim::TemporaryDirectory end(sim::Beneath::kMemory);
      EXPECT_EQ(go_on(last.path(), world, 0, end.path()), wanted);
    }
    if (HasFailure()) return;
  }
}

using Hits = Outage::Hits;
INSTANTIATE_TEST_SUITE_P(
    Cases, RankOutage,
    testing::Values(
        Case{Crash::kProcessKilled, Hits::kAll, Undo::kOn, 1, Budget::kAll, Start::kNothing},
        Case{Crash::kPowerLost, Hits::kAll, Undo::kOn, 1, Budget::kLeast, Start::kNothing},
        Case{Crash::kPowerLost, Hits::kAll, Undo::kOff, 1, Budget::kLeast, Start::kNothing},
        Case{Crash::kPowerLost, Hits::kAll, Undo::kOn, 2, Budget::kAll, Start::kNothing},
        Case{Crash::kProcessKilled, Hits::kOne, Undo::kOff, 2, Budget::kLeast, Start::kNothing},
        Case{Crash::kPowerLost, Hits::kOne, Undo::kOn, 1, Budget::kAll, Start::kNothing},
        Case{Crash::kPowerLost, Hits::kAll, Undo::kOn, 1, Budget::kLeast, Start::kStoreOfAnotherWorld},
        Case{Crash::kPowerLost, Hits::kOne, Undo::kOff, 2, Budget::kAll, Start::kStoreOfAnotherWorld}),
    name_of);

}  // namespace
}  // namespace sluice
