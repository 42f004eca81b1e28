#include <fmt/format.h>

#include "engine/small_engine.hpp"

namespace sluice {
namespace {

using sim::dim;
using sim::Fails;
using sim::IsOk;
using testing::AllOf;
using testing::HasSubstr;

class Budgets : public sim::EngineTest {
 protected:
  /// Six chunks of bf16_split in two parameters, then seal().
  Result<SealReport> try_seal() {
    make();
    add("a", {dim(4 * kChunk)});
    add("b", {dim(2 * kChunk)});
    return engine->seal();
  }
  /// The number that follows `words` in a refusal's message.
  static std::uint64_t number_after(const Status& status, std::string_view words) {
    const std::size_t at = status.message().find(words);
    EXPECT_NE(at, std::string::npos) << status.to_string();
    return at == std::string::npos ? 0 : std::stoull(status.message().substr(at + words.size()));
  }
  /// Whether `budget` = the smallest that the refusal names works and one byte less does not.
  void expect_smallest(std::uint64_t& budget, std::string_view words) {
    const Status refused = try_seal().status();
    ASSERT_THAT(refused, Fails(Code::kResourceExhausted, HasSubstr(std::to_string(budget))));
    const std::uint64_t smallest = number_after(refused, words);
    budget = smallest;
    EXPECT_THAT(try_seal(), IsOk());
    budget = smallest - 1;
    EXPECT_THAT(try_seal(), Fails(Code::kResourceExhausted, HasSubstr(std::to_string(smallest))));
  }
};

TEST_F(Budgets, SmallestHostBudgetThatTheRefusalNamesWorksAndOneByteLessDoesNot) {
  options.host_budget_bytes = 100'000;
  expect_smallest(options.host_budget_bytes, "the smallest that would do is ");
}

TEST_F(Budgets, HostRefusalShowsTheArithmetic) {
  options.host_budget_bytes = 100'000;
  EXPECT_THAT(try_seal(), Fails(Code::kResourceExhausted,
                                AllOf(HasSubstr("host_budget_bytes = 100000"),
                                      HasSubstr(fmt::format("3 x {} bytes: record frames", kChunk * 12)),
                                      HasSubstr(fmt::format("3 x {} bytes: gradient frames", kChunk * 4)),
                                      HasSubstr(fmt::format("2 x {} bytes: weight frames", kChunk * 2)))));
}

TEST_F(Budgets, SmallestHostBudgetWithoutDirectoriesWorksAndOneByteLessDoesNot) {
  options.directories.clear();
  options.host_budget_bytes = 100'000;
  expect_smallest(options.host_budget_bytes, "the smallest that would do is ");
}

TEST_F(Budgets, WithoutDirectoriesTheRefusalNamesTheMissingTier) {
  options.directories.clear();
  options.host_budget_bytes = 6 * kChunk * 16 - 1;
  EXPECT_THAT(try_seal(), Fails(Code::kResourceExhausted, HasSubstr("without a directory")));
}

TEST_F(Budgets, SmallestNvmeBudgetThatTheRefusalNamesWorksAndOneByteLessDoesNot) {
  options.host_budget_bytes = 3 * kChunk * 16 + 2 * kChunk * 2;
  options.nvme_budget_bytes = 4096;
  expect_smallest(options.nvme_budget_bytes, "the smallest that would do is ");
}

TEST_F(Budgets, LargestParameterBoundsMaxFetchFromBelow) {
  options.max_fetch_bytes = 1000;
  EXPECT_THAT(try_seal(), Fails(Code::kResourceExhausted, HasSubstr("'a'")));
  expect_smallest(options.max_fetch_bytes, "smallest max_fetch_bytes that would do: ");
}

TEST_F(Budgets, SmallestDeviceBudgetBesideAMaxFetchWorksAndOneByteLessDoesNot) {
  options.max_fetch_bytes = 5 * kChunk * 2;
  options.device_budget_bytes = 5 * kChunk;
  expect_smallest(options.device_budget_bytes, "smallest device_budget_bytes that would do: ");
}

TEST_F(Budgets, SmallestDeviceBudgetOfWhichHalfIsFetchedWorksAndOneByteLessDoesNot) {
  options.device_budget_bytes = 5 * kChunk;
  expect_smallest(options.device_budget_bytes, "smallest device_budget_bytes that would do: ");
}

class KeptBudgets : public Budgets, public testing::WithParamInterface<std::uint64_t> {};

TEST_P(KeptBudgets, SmallestDeviceBudgetCountsThemAsWell) {
  const auto seals = [&] {
    make();
    add("kept", {dim(GetParam())}, {}, Zeros{}, Residency::kDevice);
    add("a", {dim(2 * kChunk)});
    add("b", {dim(2 * kChunk)});
    return engine->seal();
  };
  for (const std::uint64_t max_fetch_bytes : {std::uint64_t{0}, 2 * kChunk * 2}) {
    options.max_fetch_bytes = max_fetch_bytes;
    options.device_budget_bytes = 4096;
    const Result<SealReport> refused = seals();
    ASSERT_THAT(refused, Fails(Code::kResourceExhausted, HasSubstr("4096")));
    options.device_budget_bytes =
        number_after(refused.status(), "smallest device_budget_bytes that would do: ");
    EXPECT_THAT(seals(), IsOk());
    --options.device_budget_bytes;
    EXPECT_THAT(seals(), Fails(Code::kResourceExhausted, HasSubstr("device_budget_bytes")));
  }
}
INSTANTIATE_TEST_SUITE_P(Elements, KeptBudgets, testing::Values(256, 3 << 14, 9 << 14));

TEST_F(Budgets, FailedSealLeavesNothingBehind) {
  options.nvme_budget_bytes = 4096;
  options.host_budget_bytes = 3 * kChunk * 16 + 2 * kChunk * 2;
  EXPECT_FALSE(try_seal().ok());
  EXPECT_TRUE(std::filesystem::is_empty(house.directory.path()));
  EXPECT_THAT(engine->seal(), Fails(Code::kFailedPrecondition, HasSubstr("make a new engine")));
}

TEST_F(Budgets, HalfOfTheDeviceBudgetIsFetchedByDefault) {
  options.device_budget_bytes = 16 * kChunk;
  const Result<SealReport> report = try_seal();
  ASSERT_THAT(report, IsOk());
  // Room for all weights is all that is ever reserved.
  EXPECT_EQ(report->device_bytes, 6 * kChunk * 2);
  Pass pass = look();
  const ParameterId both[] = {{0}, {1}};
  EXPECT_THAT(pass.fetch(both), Fails(Code::kResourceExhausted, HasSubstr("max_fetch_bytes 131072")));
}

struct BadOption {
  const char* field;
  const char* value;
  void (*set)(EngineOptions&);
};
void PrintTo(const BadOption& bad, std::ostream* out) { *out << bad.field << " = " << bad.value; }

class BadOptions : public sim::EngineTest, public testing::WithParamInterface<BadOption> {};

TEST_P(BadOptions, AreRefusedByCreateWithFieldValueAndRange) {
  GetParam().set(options);
  const auto made = house.make_engine(options);
  EXPECT_THAT(
      made, Fails(Code::kInvalidArgument,
                  AllOf(HasSubstr(fmt::format("{} = {}, accepted: ", GetParam().field, GetParam().value)))));
}
INSTANTIATE_TEST_SUITE_P(
    Fields, BadOptions,
    testing::Values(
        BadOption{"host_budget_bytes", "0", [](EngineOptions& o) { o.host_budget_bytes = 0; }},
        BadOption{"device_budget_bytes", "0", [](EngineOptions& o) { o.device_budget_bytes = 0; }},
        BadOption{"chunk_elements", "0", [](EngineOptions& o) { o.chunk_elements = 0; }},
        BadOption{"chunk_elements", "16385", [](EngineOptions& o) { o.chunk_elements = 16385; }},
        BadOption{"chunk_elements", "1073758208",
                  [](EngineOptions& o) { o.chunk_elements = (1 << 30) + (16 << 10); }},
        BadOption{"keep_commits", "16", [](EngineOptions& o) { o.keep_commits = 16; }},
        BadOption{"keep_commits", "1",
                  [](EngineOptions& o) {
                    o.keep_commits = 1;
                    o.directories.clear();
                  }},
        BadOption{"max_user_bytes", "1073741825", [](EngineOptions& o) { o.max_user_bytes = (1 << 30) + 1; }},
        BadOption{"recover_commit", "3", [](EngineOptions& o) { o.recover_commit = 3; }},
        BadOption{"threads", "4097", [](EngineOptions& o) { o.threads = 4097; }},
        BadOption{"io.queue_depth", "4097", [](EngineOptions& o) { o.io.queue_depth = 4097; }},
        BadOption{"io.piece_bytes", "4095", [](EngineOptions& o) { o.io.piece_bytes = 4095; }},
        BadOption{"io.piece_bytes", "1073741825",
                  [](EngineOptions& o) { o.io.piece_bytes = (1U << 30) + 1; }}));

TEST_F(Budgets, GroupsAndParametersAreRefusedWithFieldAndValue) {
  make();
  EXPECT_THAT(engine->add_group({.name = "g", .optimizer = AdamW{.lr = -1}}),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("'g'"), HasSubstr("lr = -1"))));
  EXPECT_THAT(engine->add_group({.name = "g", .optimizer = AdamW{.beta2 = 1}}),
              Fails(Code::kInvalidArgument, HasSubstr("beta2 = 1")));
  EXPECT_THAT(engine->add_parameter({.name = "p", .shape = {1}, .group = {3}, .initial = Zeros{}}),
              Fails(Code::kInvalidArgument, HasSubstr("group = 3")));
  const GroupId group = *engine->add_group({});
  EXPECT_THAT(engine->add_parameter({.name = "p", .shape = {2, -1}, .group = group, .initial = Zeros{}}),
              Fails(Code::kInvalidArgument, AllOf(HasSubstr("'p'"), HasSubstr("-1"))));
  EXPECT_THAT(engine->add_parameter({.name = "", .shape = {}, .group = group, .initial = Zeros{}}),
              Fails(Code::kInvalidArgument, HasSubstr("name")));
  EXPECT_THAT(
      engine->add_parameter({.name = "p", .shape = {1 << 30, 1 << 30}, .group = group, .initial = Zeros{}}),
      Fails(Code::kInvalidArgument, HasSubstr("2^48")));
}

TEST_F(Budgets, StepOptionsAreRefusedWithFieldAndValue) {
  ASSERT_THAT(try_seal(), IsOk());
  EXPECT_THAT(engine->begin_step({.max_norm = 0}), Fails(Code::kInvalidArgument, HasSubstr("max_norm = 0")));
  EXPECT_THAT(engine->begin_step({.max_norm = NAN}),
              Fails(Code::kInvalidArgument, HasSubstr("max_norm = nan")));
  EXPECT_THAT(engine->begin_step({.loss_scale = INFINITY}),
              Fails(Code::kInvalidArgument, HasSubstr("loss_scale = inf")));
  EXPECT_THAT(engine->begin_step({.gradient_divisor = -2}),
              Fails(Code::kInvalidArgument, HasSubstr("gradient_divisor = -2")));
}

}  // namespace
}  // namespace sluice
