#include <fmt/format.h>

#include <atomic>
#include <random>

#include "engine/ranks.hpp"

namespace sluice {
namespace {

using sim::IsOk;
using sim::kRankChunk;
using sim::Rank;
using sim::Whole;

/// Each rank's records on the drive: how many of its early updates have ended when the step is decided is chance.
class EarlyRanks : public sim::RanksTest {
 protected:
  EarlyRanks() {
    tensors_ = {
        {"large", 150'000}, {"scalar", 1}, {"fp32", 40'000, {.policy = Policy::kFp32}}, {"medium", 60'000}};
    options_.host_budget_bytes = 3 * kRankChunk * 16 + 2 * kRankChunk * 4 + 4 * (64 << 10) * 4;
  }

  struct Numbers {
    StepOptions options;
    std::uint64_t bad_rank = 99;  // whose last gradient is not finite
  };
  /// Steps of random numbers, the same on every rank.
  std::vector<Numbers> draw_steps(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<Numbers> steps(4);
    for (Numbers& step : steps) {
      step.options.micro_batches = 1 + static_cast<std::uint32_t>(random() % 2);
      step.options.gradient_divisor = 2;
      if (random() % 4 == 0) step.options.max_norm = 1 + static_cast<double>(random() % 200);
      if (random() % 5 == 0) step.bad_rank = random() % 2;
    }
    return steps;
  }

  enum class Early : std::uint8_t { kNo, kYes };
  Whole train(std::uint32_t world, const std::vector<Numbers>& steps, Early early) {
    Whole whole = make_whole();
    on_ranks(world, [&](Rank& rank) {
      for (std::uint64_t number = 0; number < steps.size(); ++number) {
        StepOptions options = steps[number].options;
        const std::uint32_t micro_batches = options.micro_batches;
        if (early == Early::kNo) options.micro_batches = 0;
        Pass pass = rank.begin(options);
        for (std::uint32_t micro = 0; micro < micro_batches; ++micro)
          for (std::size_t at = 0; at < tensors_.size(); ++at) {
            std::vector<float> values = gradient(tensors_[at], number * 100 + micro * 10 + at + rank.rank);
            if (rank.rank == steps[number].bad_rank && micro + 1 == micro_batches &&
                at + 1 == tensors_.size())
              values.back() = NAN;
            rank.give(pass, at, &values);
          }
        EXPECT_EQ(rank.step(pass).skipped, steps[number].bad_rank < world);
      }
      early_ += rank.engine->stats().early_updates;
      redone_ += rank.engine->stats().redone_updates;
      if (early == Early::kNo) {
        EXPECT_EQ(rank.engine->stats().early_updates, 0U);
      }
      rank.read_into(whole, tensors_);
    });
    return whole;
  }

  std::atomic<std::uint64_t> early_ = 0, redone_ = 0;
};

TEST_F(EarlyRanks, GiveTheBitsOfSerialSteps) {
  for (std::uint64_t life = 0; life < 12; ++life) {
    const std::uint64_t seed = sim::seed_or(1 + life);
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={}", seed));
    const std::vector<Numbers> steps = draw_steps(seed);
    const auto world = static_cast<std::uint32_t>(2 + life % 2);
    EXPECT_TRUE(train(world, steps, Early::kYes) == train(world, steps, Early::kNo)) << world << " ranks";
    if (HasFailure()) return;
  }
  EXPECT_GT(early_, 0U);
}

TEST_F(EarlyRanks, ABadValueOnOneTakesThoseOfAllBack) {
  Whole before = make_whole(), after = make_whole();
  on_ranks(3, [&](Rank& rank) {
    rank.read_into(before, tensors_);
    for (int again = 0; again < 2; ++again) {
      Pass pass = rank.begin();
      for (std::size_t at = 0; at < tensors_.size(); ++at) {
        std::vector<float> values = gradient(tensors_[at], at);
        if (rank.rank == 1 && at + 1 == tensors_.size())
          values.back() = INFINITY;  // of the last rank's shard
        rank.give(pass, at, &values);
      }
      EXPECT_TRUE(rank.step(pass).skipped);
    }
    EXPECT_EQ(rank.engine->stats().early_updates, 0U);
    rank.read_into(after, tensors_);
    // No slot is lost: a step of all chunks needs every one.
    Pass pass = rank.begin({.micro_batches = 0});
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      const std::vector<float> values = gradient(tensors_[at], at);
      rank.give(pass, at, &values);
    }
    EXPECT_EQ(rank.step(pass).step, 1U);
  });
  EXPECT_TRUE(before == after);
}

TEST_F(EarlyRanks, AFailedOneOnOneIsMadeGoodOrToldToAll) {
  Whole healthy = make_whole(), faulty = make_whole();
  for (const bool fails : {false, true})
    on_ranks(2, [&](Rank& rank) {
      const std::vector<float> large = gradient(tensors_[0], 1);
      const auto step = [&] {
        Pass pass = rank.begin();
        rank.give(pass, 0, &large);
        return pass.step();
      };
      if (fails && rank.rank == 1) rank.drive->faults().add({.op = io::Op::kRead, .error = EIO, .count = 1});
      // One that fails after the decision is the step's own.
      Result<StepResult> result = step();
      if (!result.ok()) {
        EXPECT_TRUE(fails);
        EXPECT_EQ(result.status().code(), rank.rank == 1 ? Code::kIoError : Code::kAborted);
        result = step();
      } else if (fails && rank.rank == 1) {
        EXPECT_GT(rank.engine->stats().redone_updates, 0U);
      }
      ASSERT_THAT(result, IsOk());
      EXPECT_EQ(result->step, 1U);
      rank.read_into(fails ? faulty : healthy, tensors_);
    });
  EXPECT_TRUE(healthy == faulty);
}

}  // namespace
}  // namespace sluice
