#include "engine/small_engine.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::IsOk;
using testing::HasSubstr;

/// Six chunks in one parameter: a record of one is 12 bytes an element, a gradient 4, weights 2.
class Counters : public sim::EngineTest {
 protected:
  static constexpr std::uint64_t kMany = 6 * kChunk;
  static constexpr std::uint64_t kLeast = 3 * kChunk * 16 + 2 * kChunk * 2;

  void open(std::uint64_t host_budget_bytes) {
    options.host_budget_bytes = host_budget_bytes;
    make();
    it_ = add("it", {dim(kMany)});
    report_ = seal();
    at_seal_ = engine->stats();
  }
  ParameterId it_;
  SealReport report_;
  Stats at_seal_;
};

TEST_F(Counters, AStepMovesEachRecordOnceEachWayAndSpillsWhatHasNoFrame) {
  open(kLeast);
  train(it_, Values(kMany, 1));
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.record_bytes_read - at_seal_.record_bytes_read, kMany * 12);
  EXPECT_EQ(stats.record_bytes_written - at_seal_.record_bytes_written, kMany * 12);
  EXPECT_EQ(stats.gradient_bytes_written, 3 * kChunk * 4);
  EXPECT_EQ(stats.gradient_bytes_read, 3 * kChunk * 4);
  EXPECT_EQ(stats.weight_bytes_read, 0U);
  EXPECT_EQ(stats.steps, 1U);
}

TEST_F(Counters, ResidentStateMovesNothingOnADrive) {
  open(kUnlimited);
  EXPECT_EQ(report_.resident_chunks, 6U);
  for (int i = 0; i < 3; ++i) {
    train(it_, Values(kMany, 1));
    Pass pass = look();
    (void)fetch(pass, {it_});
  }
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.record_bytes_read + stats.record_bytes_written, 0U);
  EXPECT_EQ(stats.gradient_bytes_read + stats.gradient_bytes_written + stats.weight_bytes_read, 0U);
  EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
}

TEST_F(Counters, WithoutDirectoriesThereIsNoDrive) {
  options.directories.clear();
  open(kUnlimited);
  train(it_, Values(kMany, 1));
  EXPECT_EQ(engine->stats().backend, "none");
  EXPECT_EQ(engine->stats().nvme_reserved_bytes, 0U);
}

TEST_F(Counters, AnUntouchedChunkIsNotMoved) {
  options.host_budget_bytes = kLeast;
  make();
  it_ = add("it", {dim(kMany)});
  const ParameterId beside = add("beside", {dim(kChunk)});
  seal();
  const std::uint64_t before = engine->stats().record_bytes_written;
  train(beside, Values(kChunk, 1));
  EXPECT_EQ(engine->stats().record_bytes_written - before, kChunk * 12);
}

TEST_F(Counters, ASkippedStepReadsAndWritesNoRecord) {
  open(kLeast);
  EXPECT_TRUE(train(it_, Values(kMany, INFINITY)).skipped);
  const Stats stats = engine->stats();
  EXPECT_EQ(stats.record_bytes_read, at_seal_.record_bytes_read);
  EXPECT_EQ(stats.record_bytes_written, at_seal_.record_bytes_written);
  EXPECT_EQ(stats.skipped_steps, 1U);
  EXPECT_EQ(stats.steps, 0U);
}

TEST_F(Counters, SealTellsWhatStatsTell) {
  open(kLeast);
  EXPECT_EQ(report_.chunks, 6U);
  EXPECT_EQ(report_.state_bytes, kMany * 12);
  EXPECT_EQ(report_.host_bytes, kLeast);
  EXPECT_EQ(report_.least_host_bytes, kLeast);
  EXPECT_EQ(report_.resident_chunks, 0U);
  EXPECT_EQ(report_.spilled_gradient_bytes, kMany * 4);
  EXPECT_THAT(report_.arithmetic, HasSubstr("3 x 196608 bytes: record frames"));
  EXPECT_EQ(at_seal_.state_bytes, report_.state_bytes);
  EXPECT_EQ(at_seal_.host_reserved_bytes, report_.host_bytes);
  EXPECT_EQ(at_seal_.device_reserved_bytes, report_.device_bytes);
  EXPECT_EQ(at_seal_.nvme_reserved_bytes, report_.nvme_bytes);
  EXPECT_EQ(at_seal_.chunks, 6U);
  EXPECT_EQ(at_seal_.record_bytes_written, kMany * 12);  // the first values
  EXPECT_THAT(at_seal_.fallbacks, testing::Contains(HasSubstr("gradients do not fit")));
  EXPECT_THAT(at_seal_.numa, HasSubstr("node"));
}

TEST_F(Counters, WaitsAreMeasuredOnTheEnginesClock) {
  open(kLeast);
  Pass pass = begin();
  (void)fetch(pass, {it_});
  give(pass, it_, Values(kMany, 1));
  step(pass);
  const Stats stats = engine->stats();
  EXPECT_GT(stats.fetch_wait_seconds, 0);
  EXPECT_GT(stats.gradient_wait_seconds, 0);
  EXPECT_GT(stats.step_seconds, 0);
  const double simulated = static_cast<double>(house.world.now_ns()) * 1e-9;
  EXPECT_LE(stats.fetch_wait_seconds + stats.gradient_wait_seconds + stats.step_seconds, simulated);
}

}  // namespace
}  // namespace sluice
