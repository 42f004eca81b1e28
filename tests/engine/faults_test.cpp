#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cerrno>
#include <cstring>

#include "engine/plain_model.hpp"
#include "engine/sim_engine.hpp"
#include "engine/training.hpp"
#include "kernels/convert.hpp"

namespace sluice {
namespace {

using sim::Fault;
using sim::PlainTensor;
using testing::HasSubstr;

/// An engine over simulated parts at its least budgets, beside the same model in plain arrays.
class SmallRun : public sim::Training {
 public:
  explicit SmallRun(std::uint64_t seed, Undo undo = Undo::kOn) : house(seed) {
    options_.chunk_elements = 16 << 10;
    options_.directories = {house.directory.path()};
    options_.undo = undo;
    options_.max_fetch_bytes = sim::largest_device_bytes(model);
    options_.device_budget_bytes = options_.max_fetch_bytes + 48 * 1024;
    options_.host_budget_bytes = least_host_bytes();
    options_.io.piece_bytes = 64 << 10;
  }

  ~SmallRun() { engine.reset(); }  // before the house that it lives in

  Status open() {
    engine.reset();
    Result<std::unique_ptr<Engine>> made = house.make_engine(options_);
    SLUICE_RETURN_IF_ERROR(made.status());
    engine = std::move(made).value();
    const Result<std::vector<ParameterId>> registered = register_with(*engine, model);
    SLUICE_RETURN_IF_ERROR(registered.status());
    parameters = *registered;
    return engine->seal().status();
  }

  bool contributes(std::uint64_t micro, std::size_t tensor) const {
    return sim::contributes(model.tensors[tensor], micro);
  }
  /// Lets something happen, and the loop see it, while nobody waits.
  void turn() {
    house.world.step();
    EXPECT_TRUE(engine->update_group({0}, model.tensors[0].rule).ok());
  }
  sim::FaultPlan& faults() { return house.backend->faults(); }

  /// Closes and checks that nothing is left in the directory.
  void close() {
    const Status closed = engine->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
    EXPECT_TRUE(std::filesystem::is_empty(house.directory.path())) << "a scratch store was left behind";
  }

  sim::SimHouse house;

 private:
  /// The same for every seed.
  std::uint64_t least_host_bytes() {
    static const std::uint64_t bytes = [&] {
      const Result<EngineOptions> least = sim::least_budgets(options_, model);
      EXPECT_TRUE(least.ok()) << least.status().to_string();
      return least.ok() ? least->host_budget_bytes : 1;
    }();
    return bytes;
  }

  EngineOptions options_;
};

enum class Lasting : std::uint8_t { kOnce, kOutage };

struct FaultCase {
  const char* name;
  Undo undo;
  io::Op op;
  int error;
  Lasting lasting;
};

/// The whole of a small run while the `at`-th request of a kind fails, once or from then on until the run
/// meets it. Every call must end, with ok or with an error that says what concerns whom.
class FaultedRun {
 public:
  FaultedRun(std::uint64_t seed, const FaultCase& fault, std::uint64_t at)
      : fault_(fault), at_(at), run_(seed, fault.undo) {
    run_.house.faults.push_back({.op = fault.op,
                                 .error = fault.error,
                                 .skip = at,
                                 .count = fault.lasting == Lasting::kOnce ? 1 : Fault::kForever});
  }

  /// Returns: whether the run had so many requests that one was hit.
  bool go() {
    if (const Status sealed = run_.open(); !sealed.ok()) {
      expect_clear(sealed, "seal");
      run_.engine.reset();
      EXPECT_TRUE(std::filesystem::is_empty(run_.house.directory.path())) << "left by a failed seal()";
      run_.house.faults.clear();
      const Status again = run_.open();
      EXPECT_TRUE(again.ok()) << again.to_string();
      if (!again.ok()) return true;
    }
    for (std::uint64_t step = 0; step < 3 && go_on(); ++step) {
      while (go_on() && !train(step)) {
        EXPECT_LE(++failed_passes_, 2) << "step " << step << " does not recover";
        if (failed_passes_ > 2) return true;
      }
      if (go_on()) evaluate();
      if (go_on() && step == 0) write_masters();
    }
    if (go_on()) expect_state();
    const bool hit = failures_ > 0 || stuck_ || run_.faults().hits() > 0;
    run_.close();
    return hit;
  }

  bool stuck() const { return stuck_; }

 private:
  bool go_on() const { return !stuck_ && !testing::Test::HasFailure(); }

  void expect_clear(const Status& status, const std::string& doing) {
    ++failures_;
    if (fault_.lasting == Lasting::kOnce) {
      EXPECT_EQ(failures_, 1) << doing << " fails too: " << status.to_string();
    }
    EXPECT_EQ(status.code(), fault_.error == ENOSPC ? Code::kNoSpace : Code::kIoError)
        << doing << ": " << status.to_string();
    EXPECT_EQ(status.native(), fault_.error) << doing << ": " << status.to_string();
    const bool names = std::ranges::any_of(run_.model.tensors, [&](const PlainTensor& tensor) {
      return status.message().find("'" + tensor.name + "'") != std::string::npos;
    });
    EXPECT_TRUE(names) << doing << " names no parameter: " << status.to_string();
  }

  /// The outage is over.
  void repair() { run_.faults().clear(); }

  void expect_state() {
    std::string difference = run_.difference();
    if (!difference.empty() && run_.faults().hits() > 0 && failures_ == 0) {
      // This read was the one that was hit.
      EXPECT_THAT(difference, HasSubstr(fault_.error == ENOSPC ? "NoSpace" : "IoError"));
      ++failures_;
      repair();
      difference = run_.difference();
    }
    EXPECT_EQ(difference, "");
  }

  /// After a failure without undo: either nothing had changed, or every later call gives the first cause.
  void expect_state_or_stuck(const Status& cause) {
    const Result<Pass> next = run_.engine->begin_pass("after");
    if (next.ok()) return;
    EXPECT_EQ(fault_.undo, Undo::kOff) << "stuck although undo is on: " << next.status().to_string();
    stuck_ = true;
    const std::string first = next.status().to_string();
    EXPECT_EQ(first, cause.to_string());
    float value = 0;
    EXPECT_EQ(run_.engine->begin_step().status().to_string(), first);
    EXPECT_EQ(run_.engine->read(run_.parameters[0], View::kMaster, {0, 1}, &value, DType::kF32).to_string(),
              first);
    EXPECT_EQ(run_.engine->write(run_.parameters[0], View::kMaster, {0, 1}, &value, DType::kF32).to_string(),
              first);
    EXPECT_EQ(run_.engine->update_group({0}, AdamW{}).to_string(), first);
  }

  void fetch(Pass& pass, std::size_t tensor) {
    const Status fetched = run_.fetch(pass, tensor);
    if (fetched.ok()) return;
    expect_clear(fetched, "fetch");
    EXPECT_THAT(fetched.message(), HasSubstr("fetch '" + run_.model.tensors[tensor].name + "'"));
    repair();
    const Status again = run_.fetch(pass, tensor);
    EXPECT_TRUE(again.ok()) << "not fetched again: " << again.to_string();
  }

  /// Returns: whether the step was made; if not, the state is the one before.
  bool train(std::uint64_t step) {
    const StepOptions options{.max_norm = 0.5, .gradient_divisor = 2, .micro_batches = 2};
    Result<Pass> pass = run_.engine->begin_step(options);
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    if (!pass.ok()) return false;
    const std::size_t tensors = run_.parameters.size();
    for (std::uint64_t micro = 0; micro < options.micro_batches; ++micro) {
      for (std::size_t tensor = 0; tensor < tensors; ++tensor) fetch(*pass, tensor);
      if (micro == 1) evaluate();
      for (std::size_t tensor = tensors; tensor-- > 0;) {
        fetch(*pass, tensor);
        if (!run_.contributes(micro, tensor)) continue;
        const Status added = run_.add_gradient(*pass, step, micro, tensor);
        if (added.ok()) continue;
        expect_clear(added, "add_gradient");
        give_up(*pass, added);
        return false;
      }
    }
    const Result<StepResult> result = pass->step();
    if (!result.ok()) {
      expect_clear(result.status(), "step");
      repair();
      expect_state_or_stuck(result.status());
      if (go_on()) expect_state();
      return false;
    }
    const StepResult expected = step_model(run_.model, step, options);
    EXPECT_EQ(result->norm, expected.norm);
    EXPECT_EQ(result->step, expected.step);
    return true;
  }

  /// A gradient was lost: a step without it must not be made.
  void give_up(Pass& pass, const Status& cause) {
    if (at_ % 2 == 0) {
      EXPECT_TRUE(pass.abort().ok());
    } else {
      EXPECT_EQ(pass.step().status().to_string(), cause.to_string());
    }
    repair();
    expect_state();
  }

  void evaluate() {
    Result<Pass> pass = run_.engine->begin_pass("evaluate");
    EXPECT_TRUE(pass.ok()) << pass.status().to_string();
    if (!pass.ok()) return;
    for (std::size_t tensor : {1, 0, 3}) fetch(*pass, tensor);
    const Status ended = pass->end();
    EXPECT_TRUE(ended.ok()) << ended.to_string();
  }

  void write_masters() {
    PlainTensor& alpha = run_.model.tensors[0];
    const std::vector<float> values = sim::gradient_values(99, 0, 0, 30000);
    const auto write = [&] {
      return run_.engine->write(run_.parameters[0], View::kMaster, {5000, 30000}, values.data(), DType::kF32);
    };
    if (const Status written = write(); !written.ok()) {
      expect_clear(written, "write");
      repair();
      expect_state_or_stuck(written);
      if (!go_on()) return;
      expect_state();
      const Status again = write();
      EXPECT_TRUE(again.ok()) << again.to_string();
    }
    kernels::split_bf16(alpha.weight16.data() + 5000, alpha.residual.data() + 5000, values.data(), 30000);
  }

  const FaultCase fault_;
  const std::uint64_t at_;
  SmallRun run_;
  int failures_ = 0;
  int failed_passes_ = 0;
  bool stuck_ = false;
};

class EngineFaults : public testing::TestWithParam<FaultCase> {};

TEST_P(EngineFaults, AtEveryRequestInTurnAreToldAndSurvived) {
  const std::uint64_t base = sim::seed_or(1);
  bool stuck = false;
  std::uint64_t at = 0;
  // Outages start at every third request: which one is hit first matters less.
  const std::uint64_t stride = GetParam().lasting == Lasting::kOnce ? 1 : 3;
  for (bool hit = true; hit && !HasFailure(); at += stride) {
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} at request {}", base, at));
    FaultedRun run(base + at, GetParam(), at);
    hit = run.go();
    stuck = stuck || run.stuck();
  }
  if (HasFailure()) return;
  EXPECT_GT(at, 100U) << "the run is too small to mean anything";
  EXPECT_EQ(stuck, GetParam().undo == Undo::kOff)
      << "a half-made step without undo must stick, nothing else may";
}
INSTANTIATE_TEST_SUITE_P(
    Kinds, EngineFaults,
    testing::Values(FaultCase{"ReadOnceUndoOn", Undo::kOn, io::Op::kRead, EIO, Lasting::kOnce},
                    FaultCase{"WriteOnceUndoOn", Undo::kOn, io::Op::kWrite, EIO, Lasting::kOnce},
                    FaultCase{"NoSpaceOnceUndoOn", Undo::kOn, io::Op::kWrite, ENOSPC, Lasting::kOnce},
                    FaultCase{"ReadOutageUndoOn", Undo::kOn, io::Op::kRead, EIO, Lasting::kOutage},
                    FaultCase{"WriteOutageUndoOn", Undo::kOn, io::Op::kWrite, EIO, Lasting::kOutage},
                    FaultCase{"ReadOnceUndoOff", Undo::kOff, io::Op::kRead, EIO, Lasting::kOnce},
                    FaultCase{"WriteOnceUndoOff", Undo::kOff, io::Op::kWrite, EIO, Lasting::kOnce},
                    FaultCase{"NoSpaceOutageUndoOff", Undo::kOff, io::Op::kWrite, ENOSPC, Lasting::kOutage}),
    [](const auto& case_info) { return std::string(case_info.param.name); });

TEST(EngineFaults, OfDeviceCopiesPinNothing) {
  const std::uint64_t base = sim::seed_or(7);
  int failures = 0;
  for (std::uint64_t copy = 1; copy < 60; ++copy) {
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={} copy {}", base, copy));
    SmallRun run(base + copy);
    run.house.device_options.fail_copy = copy;
    ASSERT_TRUE(run.open().ok());
    int failed = 0;
    for (int round = 0; round < 2; ++round) {
      Result<Pass> pass = run.engine->begin_pass("fetches");
      ASSERT_TRUE(pass.ok());
      for (std::size_t tensor = 0; tensor < run.parameters.size(); ++tensor) {
        const Status fetched = run.fetch(*pass, tensor);
        if (fetched.ok()) continue;
        ++failed;
        EXPECT_EQ(fetched.code(), Code::kIoError);
        EXPECT_THAT(fetched.message(), HasSubstr("fetch '" + run.model.tensors[tensor].name + "'"));
        EXPECT_TRUE(run.fetch(*pass, tensor).ok());
      }
      const Status ended = pass->end();
      EXPECT_TRUE(ended.ok()) << ended.to_string();
    }
    EXPECT_LE(failed, 1);
    failures += failed;
    run.close();
    if (HasFailure()) return;
  }
  EXPECT_GT(failures, 10);
}

TEST(EngineFaults, OfReadAheadLeaveOtherFetchesAlone) {
  SmallRun run(sim::seed_or(3));
  ASSERT_TRUE(run.open().ok());
  Result<Pass> pass = run.engine->begin_pass("hints");
  ASSERT_TRUE(pass.ok());
  const std::size_t alpha = 0, delta = 3;
  run.faults().add({.op = io::Op::kRead, .error = EIO, .count = 1});
  pass->prefetch({&run.parameters[delta], 1});
  for (int turn = 0; turn < 1000 && run.faults().hits() == 0; ++turn) run.turn();
  ASSERT_EQ(run.faults().hits(), 1U);
  EXPECT_TRUE(run.fetch(*pass, alpha).ok());
  EXPECT_TRUE(run.fetch(*pass, delta).ok());
  EXPECT_TRUE(pass->end().ok());
  run.close();
}

TEST(EngineFaults, OfReadAheadAreNotRepeatedWhileNobodyWaits) {
  SmallRun run(sim::seed_or(4));
  ASSERT_TRUE(run.open().ok());
  const std::size_t epsilon = 4;
  Result<Pass> pass = run.engine->begin_pass("cycle");
  ASSERT_TRUE(pass.ok() && run.fetch(*pass, epsilon).ok() && pass->end().ok());
  // Moments as they are: what counts is that the weights have to be read again.
  const std::vector<float> zeros(300);
  ASSERT_TRUE(
      run.engine->write(run.parameters[epsilon], View::kMoment1, {0, 300}, zeros.data(), DType::kF32).ok());

  run.faults().add({.op = io::Op::kRead, .error = EIO});
  pass = run.engine->begin_pass("cycle");
  ASSERT_TRUE(pass.ok());
  for (int turn = 0; turn < 2000; ++turn) run.turn();
  EXPECT_GT(run.faults().hits(), 0U) << "nothing was read ahead";
  EXPECT_LT(run.faults().hits(), 10U) << "a broken drive is asked again and again";
  run.faults().clear();
  EXPECT_TRUE(run.fetch(*pass, epsilon).ok());
  EXPECT_TRUE(pass->end().ok());
  run.close();
}

TEST(EngineFaults, LeakNeitherFramesNorSlotsNorDeviceRoom) {
  const std::uint64_t seed = sim::seed_or(5);
  SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={}", seed));
  SmallRun run(seed);
  ASSERT_TRUE(run.open().ok());
  const StepOptions options{.micro_batches = 2};
  std::uint64_t failures = 0, steps = 0;
  for (double probability : {0.5, 0.1, 0.02}) {
    run.faults().clear();
    run.faults().add({.op = io::Op::kRead, .error = EIO, .probability = probability});
    run.faults().add({.op = io::Op::kWrite, .error = EIO, .probability = probability});
    for (int round = 0; round < 40; ++round) {
      Result<Pass> pass = run.engine->begin_step(options);
      ASSERT_TRUE(pass.ok()) << pass.status().to_string();
      Status lost;
      for (std::uint64_t micro = 0; micro < options.micro_batches; ++micro)
        for (std::size_t tensor = 0; tensor < run.parameters.size(); ++tensor) {
          const Status fetched = run.fetch(*pass, tensor);
          ASSERT_NE(fetched.code(), Code::kInternal) << fetched.to_string();
          failures += !fetched.ok();
          if (!run.contributes(micro, tensor)) continue;
          const Status added = run.add_gradient(*pass, steps, micro, tensor);
          ASSERT_NE(added.code(), Code::kInternal) << added.to_string();
          failures += !added.ok();
          if (lost.ok()) lost = added;
        }
      const Result<StepResult> result = pass->step();
      ASSERT_NE(result.status().code(), Code::kInternal) << result.status().to_string();
      ASSERT_TRUE(lost.ok() || !result.ok()) << "a step without " << lost.to_string();
      failures += !result.ok();
      if (result.ok()) step_model(run.model, steps++, options);
    }
  }
  EXPECT_GT(failures, 300U);
  EXPECT_GT(steps, 0U) << "nothing ever worked";
  run.faults().clear();

  for (int round = 0; round < 3; ++round) {
    Result<Pass> pass = run.engine->begin_step(options);
    ASSERT_TRUE(pass.ok());
    for (std::uint64_t micro = 0; micro < options.micro_batches; ++micro)
      for (std::size_t tensor = 0; tensor < run.parameters.size(); ++tensor) {
        ASSERT_TRUE(run.fetch(*pass, tensor).ok());
        if (run.contributes(micro, tensor)) {
          ASSERT_TRUE(run.add_gradient(*pass, steps, micro, tensor).ok());
        }
      }
    const Result<StepResult> result = pass->step();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    step_model(run.model, steps++, options);
  }
  EXPECT_EQ(run.difference(), "");
  run.close();
}

}  // namespace
}  // namespace sluice
