#include <cerrno>
#include <cstring>
#include <span>
#include <thread>

#include "engine/ranks.hpp"
#include "engine/small_engine.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using sim::kRankChunk;
using sim::kShowsGradient;
using sim::Rank;
using sim::RanksTest;
using sim::Tensor;
using sim::Whole;
using testing::AllOf;
using testing::HasSubstr;

TEST_F(RanksTest, OfAnyNumberGiveTheSameBitsForTheSameGradients) {
  const StepOptions step_options{.max_norm = 0.5, .loss_scale = 4, .gradient_divisor = 2};
  std::vector<Whole> wholes;
  std::vector<double> norms;
  for (const std::uint32_t world : {1U, 2U, 3U}) {
    Whole whole = make_whole();
    on_ranks(world, [&](Rank& rank) {
      for (std::uint64_t step = 0; step < 3; ++step) {
        Pass pass = rank.begin(step_options);
        for (std::size_t at = 0; at < tensors_.size(); ++at) {
          const std::vector<float> values = gradient(tensors_[at], step * 10 + at);
          // One rank has the gradient, another one each time.
          rank.give(pass, at, (step + at) % world == rank.rank ? &values : nullptr);
        }
        const double norm = rank.step(pass).norm;
        if (rank.rank == 0) norms.push_back(norm);
      }
      rank.read_into(whole, tensors_);
    });
    wholes.push_back(std::move(whole));
  }
  for (std::size_t i = 1; i < wholes.size(); ++i) EXPECT_TRUE(wholes[i] == wholes[0]) << "world " << i + 1;
  EXPECT_EQ(wholes[0].counts, std::vector<std::uint64_t>(tensors_.size(), 3));
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(norms[3 + step], norms[step]);
    EXPECT_EQ(norms[6 + step], norms[step]);
  }
}

TEST_F(RanksTest, ContributionsAddInOrderOfRank) {
  constexpr std::uint32_t kWorld = 3;
  Whole split = make_whole(), summed = make_whole();
  on_ranks(kWorld, [&](Rank& rank) {
    Pass pass = rank.begin();
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      const std::vector<float> values = gradient(tensors_[at], 100 * rank.rank + at);
      rank.give(pass, at, &values);
    }
    rank.step(pass);
    rank.read_into(split, tensors_);
  });
  on_ranks(1, [&](Rank& rank) {
    Pass pass = rank.begin();
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      std::vector<float> sum = gradient(tensors_[at], at);
      for (std::uint32_t other = 1; other < kWorld; ++other) {
        const std::vector<float> values = gradient(tensors_[at], 100 * other + at);
        for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
      }
      rank.give(pass, at, &sum);
    }
    rank.step(pass);
    rank.read_into(summed, tensors_);
  });
  EXPECT_TRUE(split == summed);
}

TEST_F(RanksTest, Bf16OnceRoundsTheSumOnce) {
  tensors_ = {{"once", 3, {.optimizer = kShowsGradient, .gradient = GradientStorage::kBf16Once}}};
  Whole whole = make_whole();
  on_ranks(3, [&](Rank& rank) {
    Pass pass = rank.begin();
    // Rounded after every addition 1 + 0.75 ulp / 2 would stay 1; the whole sum is above half an ulp.
    const std::vector<float> values(3, rank.rank == 0 ? 1 : 0.375F * 0x1p-7F);
    rank.give(pass, 0, &values);
    rank.step(pass);
    rank.read_into(whole, tensors_);
  });
  EXPECT_THAT(whole.values[0][2], testing::Each(1 + 0x1p-7F));
}

TEST_F(RanksTest, MixedDTypesAndPartsAddUp) {
  tensors_ = {{"it", 600}};
  Whole whole = make_whole();
  on_ranks(2, [&](Rank& rank) {
    Pass pass = rank.begin();
    const std::vector<float> twos(600, 2);
    const std::vector<std::uint16_t> ones(600, 0x3f80);
    for (const More more : {More::kYes, More::kNo}) {
      Gradient part = rank.rank == 0 ? Gradient::f32(twos.data()) : Gradient::bf16(ones.data());
      part.more = more;
      EXPECT_THAT(pass.add_gradient(rank.parameters[0], part), IsOk());
    }
    EXPECT_EQ(rank.step(pass).norm, 6 * std::sqrt(600.0));
    rank.read_into(whole, tensors_);
  });
  EXPECT_THAT(whole.values[0][2], testing::Each(6));
  EXPECT_EQ(whole.counts[0], 1U);
}

TEST_F(RanksTest, EveryRankFetchesTheWholeWeights) {
  on_ranks(3, [&](Rank& rank) {
    Result<Pass> pass = rank.engine->begin_pass("look");
    ASSERT_THAT(pass, IsOk());
    for (int round = 0; round < 2; ++round)
      for (std::size_t at = 0; at < tensors_.size(); ++at) {
        const Result<Lease> lease = pass->fetch(std::vector{rank.parameters[at], rank.parameters[0]});
        ASSERT_THAT(lease, IsOk());
        EXPECT_EQ((*lease)[rank.parameters[at]].elements, tensors_[at].elements);
      }
  });
}

TEST_F(RanksTest, FetchesShowWhatEveryRankHasWritten) {
  tensors_ = {{"it", 40'000}, {"kept", 700, {}, Residency::kDevice}};
  on_ranks(3, [&](Rank& rank) {
    for (std::size_t at = 0; at < tensors_.size(); ++at) {
      std::vector<std::uint16_t> values(tensors_[at].elements);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<std::uint16_t>(0x3f80 + i % 128);
      ASSERT_THAT(rank.engine->write(rank.parameters[at], View::kWeight, {0, values.size()}, values.data(),
                                     DType::kBF16),
                  IsOk());
      Result<Pass> pass = rank.engine->begin_pass("look");
      const Result<Lease> lease = pass->fetch(std::vector{rank.parameters[at]});
      ASSERT_THAT(lease, IsOk());
      EXPECT_EQ(std::memcmp((*lease)[rank.parameters[at]].data, values.data(), values.size() * 2), 0);
    }
  });
}

TEST_F(RanksTest, AWriteOnOneRankIsSeenByAllAlsoInKeptParameters) {
  tensors_ = {{"kept", 700, {}, Residency::kDevice}};
  on_ranks(2, [&](Rank& rank) {
    const auto first = [&] {
      Result<Pass> pass = rank.engine->begin_pass("look");
      const Result<Lease> lease = pass->fetch(rank.parameters);
      EXPECT_THAT(lease, IsOk());
      return lease.ok() ? *static_cast<const std::uint16_t*>((*lease)[rank.parameters[0]].data) : 0;
    };
    first();
    const float value = 2;
    if (rank.rank == 0) {
      EXPECT_THAT(rank.engine->write(rank.parameters[0], View::kMaster, {0, 1}, &value, DType::kF32), IsOk());
    }
    EXPECT_EQ(first(), 0x4000);
  });
}

TEST_F(RanksTest, ReadOfAnotherRanksElementsIsRefused) {
  tensors_ = {{"it", 1000}};
  on_ranks(3, [&](Rank& rank) {
    std::vector<float> values(1000);
    EXPECT_THAT(rank.engine->read(rank.parameters[0], View::kMaster, {0, 1000}, values.data(), DType::kF32),
                Fails(Code::kFailedPrecondition, AllOf(HasSubstr("'it'"), HasSubstr("rank"))));
  });
}

TEST_F(RanksTest, ABadGradientOnOneSkipsTheStepOnAll) {
  Whole before = make_whole(), after = make_whole();
  on_ranks(3, [&](Rank& rank) {
    rank.read_into(before, tensors_);
    Pass pass = rank.begin();
    std::vector<float> values = gradient(tensors_[5], 1);
    if (rank.rank == 1) values[199'999] = NAN;  // of the last rank's shard
    rank.give(pass, 5, &values);
    EXPECT_EQ(*pass.norm(), INFINITY);
    const StepResult result = rank.step(pass);
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.norm, INFINITY);
    rank.read_into(after, tensors_);
    EXPECT_EQ(rank.engine->stats().skipped_steps, 1U);
  });
  EXPECT_TRUE(before == after);
}

/// At the least host budget, so that each rank's records are on the drive.
class RanksOnDrives : public RanksTest {
 protected:
  RanksOnDrives() {
    tensors_ = {{"large", 300'000}};  // seven chunks a rank of three
    options_.host_budget_bytes = 3 * kRankChunk * 16 + 2 * kRankChunk * 2 + 4 * (64 << 10) * 4;
  }
};

TEST_F(RanksOnDrives, AFailureOnOneInAStepIsAnErrorOnAllAndTheStateThatBeforeIt) {
  for (const io::Op op : {io::Op::kRead, io::Op::kWrite}) {
    Whole before = make_whole(), after = make_whole(), stepped = make_whole();
    on_ranks(3, [&](Rank& rank) {
      const auto train = [&] {
        Pass pass = rank.begin({.micro_batches = 0});  // so that the fault is met by step()
        const std::vector<float> values = gradient(tensors_[0], rank.rank);
        rank.give(pass, 0, &values);
        if (rank.rank == 1) rank.drive->faults().add({.op = op, .error = EIO, .skip = 2, .count = 1});
        return pass.step();
      };
      rank.read_into(before, tensors_);
      const Result<StepResult> failed = train();
      if (rank.rank == 1) {
        EXPECT_THAT(failed, Fails(Code::kIoError, HasSubstr("'large'")));
      } else {
        EXPECT_THAT(failed, Fails(Code::kAborted, HasSubstr("rank 1")));
      }
      if (rank.rank == 1) rank.drive->faults().clear();
      rank.read_into(after, tensors_);
      Pass pass = rank.begin();
      const std::vector<float> values = gradient(tensors_[0], rank.rank);
      rank.give(pass, 0, &values);
      EXPECT_EQ(rank.step(pass).step, 1U);
      rank.read_into(stepped, tensors_);
    });
    EXPECT_TRUE(before == after);
    EXPECT_EQ(stepped.counts[0], 1U);
    EXPECT_FALSE(before == stepped);
  }
}

TEST_F(RanksTest, GradientsInAnotherOrderAreAnErrorOnAllAndNobodyWaits) {
  on_ranks(3, [&](Rank& rank) {
    Pass pass = rank.begin();
    const std::vector<float> values(10, 1);
    const ParameterId mine = rank.parameters[rank.rank == 2 ? 0 : 1];
    EXPECT_THAT(pass.add_gradient(mine, Gradient::f32(values.data())),
                Fails(Code::kFailedPrecondition, HasSubstr("same order")));
    EXPECT_FALSE(pass.step().ok());
  });
}

TEST_F(RanksTest, AGradientThatMeetsAStepIsAnErrorOnBothAndNobodyWaits) {
  on_ranks(2, [&](Rank& rank) {
    Pass pass = rank.begin();
    const std::vector<float> values(10, 1);
    if (rank.rank == 0) {
      EXPECT_FALSE(pass.add_gradient(rank.parameters[1], Gradient::f32(values.data())).ok());
    } else {
      EXPECT_FALSE(pass.step().ok());
    }
  });
}

TEST_F(RanksTest, FetchesOfDifferentParametersAreAnErrorOnAllAndNobodyWaits) {
  tensors_ = {{"a", 700}, {"b", 700}};
  on_ranks(2, [&](Rank& rank) {
    Result<Pass> pass = rank.engine->begin_pass("look");
    EXPECT_THAT(pass->fetch(std::vector{rank.parameters[rank.rank]}),
                Fails(Code::kFailedPrecondition, HasSubstr("other parameters")));
    EXPECT_THAT(pass->fetch(rank.parameters), IsOk());
  });
}

TEST_F(RanksTest, AParameterWithAGradientOnSomeRanksNeedsNoneOnTheOthers) {
  tensors_ = {{"a", 700}, {"b", 700}};
  on_ranks(2, [&](Rank& rank) {
    Pass pass = rank.begin();
    const std::vector<float> values(700, 1);
    rank.give(pass, 0, rank.rank == 0 ? &values : nullptr);
    EXPECT_EQ(rank.step(pass).norm, std::sqrt(700.0));
  });
}

TEST_F(RanksTest, DifferentRegistrationIsRefusedBySealOnAll) {
  struct Difference {
    const char* what;
    std::function<void(Rank&, Tensor&)> make;
  };
  const Difference differences[] = {
      {"name", [](Rank&, Tensor& it) { it.name = "other"; }},
      {"elements", [](Rank&, Tensor& it) { it.elements = 11; }},
      {"policy", [](Rank&, Tensor& it) { it.group.policy = Policy::kFp32; }},
      {"gradient", [](Rank&, Tensor& it) { it.group.gradient = GradientStorage::kBf16Once; }},
      {"optimizer", [](Rank&, Tensor& it) { it.group.optimizer = AdamW{.lr = 2}; }},
      {"residency", [](Rank&, Tensor& it) { it.residency = Residency::kDevice; }},
      {"alias", [](Rank& rank, Tensor&) { EXPECT_THAT(rank.engine->add_alias("tied", {0}), IsOk()); }},
  };
  for (const Difference& difference : differences) {
    on_unsealed(3, [&](Rank& rank) {
      const std::vector<ParameterId> parameters = add_all(*rank.engine);
      Tensor last{"last", 10, {}};
      if (rank.rank == 1) difference.make(rank, last);
      const Result<GroupId> group = rank.engine->add_group(last.group);
      ASSERT_THAT(rank.engine->add_parameter({.name = last.name,
                                              .shape = {dim(last.elements)},
                                              .group = *group,
                                              .initial = Zeros{},
                                              .residency = last.residency}),
                  IsOk());
      EXPECT_THAT(rank.engine->seal(), Fails(Code::kInvalidArgument, HasSubstr("registered other")))
          << difference.what;
    });
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  }
}

class OneBadOption : public RanksTest {
 protected:
  EngineOptions options_for(std::uint32_t rank) override {
    EngineOptions options = options_;
    if (rank == 1) change_(options);
    return options;
  }
  void expect_refusal(Code own, Code others) {
    on_unsealed(3, [&](Rank& rank) {
      add_all(*rank.engine);
      EXPECT_EQ(rank.engine->seal().status().code(), rank.rank == 1 ? own : others);
    });
    EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  }
  std::function<void(EngineOptions&)> change_;
};

TEST_F(OneBadOption, DirectoriesOnSomeRanksAloneAreRefusedOnAll) {
  change_ = [](EngineOptions& options) { options.directories.clear(); };
  expect_refusal(Code::kInvalidArgument, Code::kInvalidArgument);
}

TEST_F(OneBadOption, OnOneRankMakesSealFailOnAll) {
  change_ = [](EngineOptions& options) { options.directories = {"/nowhere/at/all"}; };
  expect_refusal(Code::kNotFound, Code::kAborted);
  change_ = [](EngineOptions& options) { options.host_budget_bytes = 1; };
  expect_refusal(Code::kResourceExhausted, Code::kAborted);
  change_ = [](EngineOptions& options) { options.seed = 1; };
  expect_refusal(Code::kInvalidArgument, Code::kInvalidArgument);
  change_ = [](EngineOptions& options) { options.undo = Undo::kOff; };
  expect_refusal(Code::kInvalidArgument, Code::kInvalidArgument);
}

TEST_F(RanksTest, DifferentStepNumbersAreAnErrorOnAll) {
  on_ranks(2, [&](Rank& rank) {
    Pass pass = rank.begin({.loss_scale = rank.rank == 0 ? 2.0 : 4.0});
    const std::vector<float> values(10, 1);
    rank.give(pass, 1, &values);
    EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("step numbers")));
  });
}

}  // namespace
}  // namespace sluice
