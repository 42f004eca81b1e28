#include <unistd.h>

#include <fmt/format.h>

#include <optional>

#include "engine/small_engine.hpp"
#include "support/child.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using testing::AllOf;
using testing::HasSubstr;

class Lifetime : public sim::EngineTest {
 protected:
  /// Records on the drive.
  void open() {
    options.host_budget_bytes = 3 * kChunk * 16 + 2 * kChunk * 2;
    make();
    it_ = add("it", {dim(5 * kChunk)});
    seal();
  }
  ParameterId it_;
};

TEST_F(Lifetime, LeasesOutliveTheirPassAndEngine) {
  open();
  Lease lease;
  {
    Pass pass = look();
    lease = fetch(pass, {it_});
  }
  engine.reset();
  EXPECT_THAT(bits(lease[it_]), testing::Each(0x3f80));
  EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
}

TEST_F(Lifetime, PassesOutliveTheirEngine) {
  open();
  Pass pass = begin();
  give(pass, it_, Values(5 * kChunk, 1));
  engine.reset();
  EXPECT_THAT(pass.step(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_THAT(pass.abort(), Fails(Code::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(Lifetime, AnEngineEndsInAnyState) {
  make();
  engine.reset();  // nothing registered
  make();
  add("a", {1});
  engine.reset();  // not sealed
  open();
  EXPECT_THAT(engine->close(), IsOk());
  engine.reset();  // closed
  open();
  Pass pass = begin();
  pass.prefetch(std::vector{it_});
  give(pass, it_, Values(5 * kChunk, 1));
  engine.reset();  // in the middle of a step, with gradients on their way to the drive
  EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
}

TEST_F(Lifetime, TwoEnginesOfOneProcessWorkInDirectoriesOfTheirOwn) {
  open();
  sim::SimHouse other{sim::seed_or(2)};
  options.directories = {other.directory.path()};
  auto second = other.make_engine(options);
  ASSERT_THAT(second, IsOk());
  const GroupId group = *(*second)->add_group({.optimizer = sim::kShowsGradient});
  const ParameterId parameter =
      *(*second)->add_parameter({.name = "it", .shape = {dim(5 * kChunk)}, .group = group});
  ASSERT_THAT((*second)->seal(), IsOk());
  const Values values(5 * kChunk, 2);
  Pass mine = begin();
  Pass theirs = (*second)->begin_step().value();
  give(mine, it_, values);
  give(theirs, parameter, values);
  EXPECT_EQ(step(mine).norm, step(theirs).norm);
  EXPECT_THAT((*second)->close(), IsOk());
  EXPECT_EQ(count(it_), 1U);
}

TEST_F(Lifetime, ASecondEngineInTheSameDirectoryIsRefusedNamingThePid) {
  open();
  auto second = house.make_engine(options);
  ASSERT_THAT(second, IsOk());
  const GroupId group = *(*second)->add_group({});
  ASSERT_THAT((*second)->add_parameter({.name = "it", .shape = {dim(5 * kChunk)}, .group = group}), IsOk());
  EXPECT_THAT((*second)->seal(), Fails(Code::kFailedPrecondition, HasSubstr(std::to_string(getpid()))));
  train(it_, Values(5 * kChunk, 1));  // the first goes on
  EXPECT_EQ(count(it_), 1U);
}

TEST_F(Lifetime, WakesOfThreadsThatAreSlowToLeaveComeToNothing) {
  std::function<void()> wake;
  engine::Parts parts;
  parts.open_compute = [&wake](std::uint32_t threads, std::function<void()> given) {
    wake = given;
    return engine::make_thread_compute(threads, std::move(given));
  };
  auto made = engine::Access::create(options, *make_host_device(), make_single_communicator(), parts);
  ASSERT_THAT(made, IsOk());
  ASSERT_THAT((*made)->seal(), IsOk());
  wake();
  EXPECT_THAT((*made)->close(), IsOk());
  wake();
  made->reset();
  wake();
}

/// Every call of the public classes; which one answered anything else than kForked.
std::string call_everything(Engine& engine, Pass& pass, ParameterId parameter) {
  std::array<float, 4> values{};
  const std::pair<const char*, Status> answers[] = {
      {"add_group", engine.add_group({}).status()},
      {"add_parameter", engine.add_parameter({.name = "x"}).status()},
      {"add_alias", engine.add_alias("y", parameter).status()},
      {"seal", engine.seal().status()},
      {"begin_step", engine.begin_step().status()},
      {"begin_pass", engine.begin_pass("x").status()},
      {"read", engine.read(parameter, View::kMaster, {0, 4}, values.data(), DType::kF32)},
      {"write", engine.write(parameter, View::kMaster, {0, 4}, values.data(), DType::kF32)},
      {"update_group", engine.update_group({0}, AdamW{})},
      {"commit", engine.commit({}, CommitMode::kWait).status()},
      {"fetch", pass.fetch(std::vector{parameter}).status()},
      {"add_gradient", pass.add_gradient(parameter, Gradient::f32(values.data()))},
      {"no_more_gradients", pass.no_more_gradients(parameter)},
      {"norm", pass.norm().status()},
      {"step", pass.step().status()},
      {"end", pass.end()},
      {"abort", pass.abort()},
      {"close", engine.close()},
  };
  for (const auto& [call, status] : answers)
    if (status.code() != Code::kForked) return fmt::format("{}: {}", call, status.to_string());
  pass.prefetch(std::vector{parameter});
  (void)engine.stats();
  return "forked";
}

TEST(LifetimeInAChild, EveryCallIsForkedDestructorsDoNothingAndTheParentGoesOn) {
  const sim::TemporaryDirectory directory;
  EngineOptions options{.directories = {directory.path()},
                        .host_budget_bytes = 3 * (16 << 10) * 16 + 2 * (16 << 10) * 2,
                        .device_budget_bytes = kUnlimited,
                        .chunk_elements = 16 << 10,
                        .keep_commits = 0,
                        .threads = 1};
  auto made = Engine::create(options, *make_host_device(), make_single_communicator());
  ASSERT_THAT(made, IsOk());
  std::unique_ptr<Engine> engine = std::move(made).value();
  const GroupId group = *engine->add_group({.optimizer = sim::kShowsGradient});
  const std::uint64_t elements = 5 * (16 << 10);
  const ParameterId it = *engine->add_parameter(
      {.name = "it", .shape = {dim(elements)}, .group = group, .initial = Constant{1}});
  ASSERT_THAT(engine->seal(), IsOk());
  Result<Pass> pass = engine->begin_step();
  ASSERT_THAT(pass, IsOk());
  Result<Lease> lease = pass->fetch(std::vector{it});
  ASSERT_THAT(lease, IsOk());

  const std::string answer = sim::in_child([&] {
    const std::string said = call_everything(*engine, *pass, it);
    *lease = Lease();
    *pass = Pass();
    engine.reset();
    return said;
  });
  EXPECT_EQ(answer, "forked");

  lease->release();
  const std::vector<float> values(elements, 2);
  ASSERT_THAT(pass->add_gradient(it, Gradient::f32(values.data())), IsOk());
  EXPECT_THAT(pass->step(), IsOk());
  std::vector<float> moments(elements);
  ASSERT_THAT(engine->read(it, View::kMoment1, {0, elements}, moments.data(), DType::kF32), IsOk());
  EXPECT_THAT(moments, testing::Each(2));
  EXPECT_THAT(engine->close(), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(LifetimeInAChild, CommitsAreTheParents) {
  const sim::TemporaryDirectory directory;
  EngineOptions options{.directories = {directory.path()},
                        .host_budget_bytes = kUnlimited,
                        .device_budget_bytes = kUnlimited,
                        .chunk_elements = 16 << 10,
                        .keep_commits = 1,
                        .threads = 1};
  const std::uint64_t elements = 5 * (16 << 10);
  ParameterId it;
  const auto open = [&](std::optional<Recovered>& recovered) {
    auto made = Engine::create(options, *make_host_device(), make_single_communicator());
    EXPECT_THAT(made, IsOk());
    std::unique_ptr<Engine> engine = std::move(made).value();
    const GroupId group = *engine->add_group({.optimizer = sim::kShowsGradient});
    it = *engine->add_parameter({.name = "it", .shape = {dim(elements)}, .group = group});
    const Result<SealReport> report = engine->seal();
    EXPECT_THAT(report, IsOk());
    if (report.ok()) recovered = report->recovered;
    return engine;
  };
  std::optional<Recovered> recovered;
  std::unique_ptr<Engine> engine = open(recovered);
  const std::vector<float> values(elements, 2);
  ASSERT_THAT(engine->write(it, View::kMaster, {0, elements}, values.data(), DType::kF32), IsOk());
  const Result<CommitTicket> ticket = engine->commit();
  ASSERT_THAT(ticket, IsOk());

  const std::string answer = sim::in_child([&]() -> std::string {
    if (const Status waited = ticket->wait(); waited.code() != Code::kForked)
      return "wait: " + waited.to_string();
    if (!ticket->done()) return "a child has nothing to wait for";
    if (const Status committed = engine->commit().status(); committed.code() != Code::kForked)
      return "commit: " + committed.to_string();
    engine.reset();
    return "forked";
  });
  EXPECT_EQ(answer, "forked");

  EXPECT_THAT(ticket->wait(), IsOk());
  EXPECT_THAT(engine->close(), IsOk());
  engine = open(recovered);
  ASSERT_TRUE(recovered.has_value());
  EXPECT_EQ(recovered->commit, 1U);
  std::vector<float> masters(elements);
  ASSERT_THAT(engine->read(it, View::kMaster, {0, elements}, masters.data(), DType::kF32), IsOk());
  EXPECT_EQ(masters, values);
}

}  // namespace
}  // namespace sluice
