#include <algorithm>

#include "engine/rewriting_engine.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using sim::RewriteTest;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST_F(RewriteTest, ToOtherChunksKeepsEveryBit) {
  options.chunk_elements = 32 << 10;
  const State expected = make_committed();
  options.chunk_elements = 16 << 10;
  expect_rewritten(expected);
}

TEST_F(RewriteTest, ToLargerChunksAndATightBudgetKeepsEveryBit) {
  const State expected = make_committed();
  options.chunk_elements = 48 << 10;
  options.host_budget_bytes = 1;
  const Result<SealReport> refused = try_open();
  ASSERT_EQ(refused.status().code(), Code::kResourceExhausted);
  options.host_budget_bytes = kUnlimited;
  expect_rewritten(expected);
}

TEST_F(RewriteTest, ToMoreDrivesAndBackKeepsEveryBit) {
  const sim::TemporaryDirectory other;
  const State expected = make_committed();
  options.directories.push_back(other.path());
  expect_rewritten(expected);
}

TEST_F(RewriteTest, ToFewerDrivesKeepsEveryBitAndEmptiesTheOldOne) {
  const sim::TemporaryDirectory other;
  options.directories.push_back(other.path());
  const State expected = make_committed();
  options.directories.pop_back();
  EXPECT_THAT(try_open(), Fails(Code::kDataLoss, HasSubstr("drive 1 of 2")));
  options.recover_directories = {other.path()};
  open();
  ASSERT_TRUE(report.recovered.has_value());
  EXPECT_EQ(state_of_all(), expected);
  EXPECT_TRUE(std::filesystem::is_empty(other.path()));
  ASSERT_THAT(engine->close(), IsOk());
  options.recover_directories = {};
  open();
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(RewriteTest, ToOtherPoliciesKeepsEveryMasterAndMoment) {
  State expected = make_committed();
  model[0].policy = Policy::kFp32;
  model[3].policy = Policy::kBf16Split;
  open();
  for (const std::string name : {"a", "d"}) {
    EXPECT_EQ(read(id(name), View::kMaster), expected[name][1]) << name;
    EXPECT_EQ(read(id(name), View::kMoment1), expected[name][2]) << name;
    EXPECT_EQ(read(id(name), View::kMoment2), expected[name][3]) << name;
    EXPECT_EQ(count(id(name)), 2U) << name;
  }
  EXPECT_THAT(report.recovered->differences,
              Contains(AllOf(HasSubstr("'a'"), HasSubstr("fp32"), HasSubstr("bf16_split"))));
  ASSERT_THAT(engine->close(), IsOk());
  model[0].policy = Policy::kBf16Split;
  model[3].policy = Policy::kFp32;
  open();
  EXPECT_EQ(state_of_all(), expected);  // there and back
}

TEST_F(RewriteTest, ToFrozenTakesTheWeightsAndFromFrozenTheMasters) {
  State expected = make_committed();
  model[0].policy = Policy::kFrozen;
  model[4].policy = Policy::kBf16Split;
  open();
  EXPECT_EQ(read(id("a"), View::kWeight), expected["a"][0]);
  EXPECT_EQ(read(id("e"), View::kMaster), expected["e"][0]);
  EXPECT_EQ(read(id("e"), View::kMoment1), Values(77, 0));
}

TEST_F(RewriteTest, ToFrozenAndBackStartsMomentsAndCountAnew) {
  make_committed();
  const auto told = [](const char* what) { return Contains(AllOf(HasSubstr("'a'"), HasSubstr(what))); };
  model[0].policy = Policy::kFrozen;
  open();
  EXPECT_THAT(report.recovered->differences, told("its moments and step count are not kept"));
  commit();
  ASSERT_THAT(engine->close(), IsOk());
  model[0].policy = Policy::kBf16Split;
  open();
  EXPECT_THAT(report.recovered->differences, told("its moments and step count start anew"));
  EXPECT_EQ(read(id("a"), View::kMoment1), Values(40'000, 0));
  EXPECT_EQ(count(id("a")), 0U);
  EXPECT_EQ(count(id("b")), 2U);
}

TEST_F(RewriteTest, ToAnotherOrderKeepsEveryBit) {
  const State expected = make_committed();
  std::ranges::reverse(model);
  open();
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(RewriteTest, ToMoreCommitsOrAnotherUndoKeepsEveryBit) {
  State expected = make_committed();
  options.keep_commits = 2;
  expect_rewritten(expected);
  commit();
  expected = state_of_all();
  ASSERT_THAT(engine->close(), IsOk());
  options.undo = Undo::kOff;
  open();
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(RewriteTest, NamesThatAreNotSharedAreRefusedAllAtOnceUnlessAllowed) {
  State expected = make_committed();
  model[1].name = "other";
  model[3].shape = {200, 200};
  EXPECT_THAT(try_open(),
              Fails(Code::kInvalidArgument,
                    AllOf(HasSubstr("'other' is not in the store"), HasSubstr("'b' is in the store"),
                          HasSubstr("'d' has shape (200, 200), in the store (40000)"))));
  options.recovery = {.allow_missing = true, .allow_extra = true};
  EXPECT_THAT(try_open(), Fails(Code::kInvalidArgument, AllOf(HasSubstr("'d'"), Not(HasSubstr("'other'")))));
  options.recovery.allow_mismatched = true;
  open();
  EXPECT_EQ(report.recovered->differences.size() >= 3, true);
  EXPECT_EQ(read(id("other")), Values(300, 2));
  EXPECT_EQ(count(id("other")), 0U);
  EXPECT_EQ(read(id("d")), Values(40'000, 2));
  EXPECT_EQ(state(id("a")), expected["a"]);
}

TEST_F(RewriteTest, WithoutRoomForBothStoresIsRefusedWithTheArithmeticAndTheOldOneStays) {
  const State expected = make_committed();
  open();
  options.nvme_budget_bytes = engine->stats().nvme_reserved_bytes;
  ASSERT_THAT(engine->close(), IsOk());
  options.chunk_elements = 32 << 10;
  EXPECT_THAT(try_open(), Fails(Code::kResourceExhausted, HasSubstr("nvme_budget_bytes")));
  engine.reset();
  options.chunk_elements = kChunk;
  open();
  EXPECT_EQ(state_of_all(), expected);
}

TEST_F(RewriteTest, ThatCannotBeCommittedLeavesTheOldStore) {
  const State expected = make_committed();
  for (const io::Op op : {io::Op::kWrite, io::Op::kFlush})
    for (std::uint64_t skip = 0;; ++skip) {
      options.chunk_elements = 32 << 10;
      house.faults = {{.op = op, .error = EIO, .skip = skip, .count = 1}};
      const Result<SealReport> sealed = try_open();
      // A seal() that failed has taken its backend with it.
      const bool hit = !sealed.ok() || house.backend->faults().hits() > 0;
      house.faults.clear();
      if (!hit) {
        EXPECT_THAT(sealed, IsOk());
        EXPECT_EQ(state_of_all(), expected);
        EXPECT_THAT(engine->close(), IsOk());
        options.chunk_elements = kChunk;
        open();  // back, for the next operation
        EXPECT_THAT(engine->close(), IsOk());
        break;
      }
      engine.reset();
      options.chunk_elements = kChunk;
      open();
      ASSERT_EQ(state_of_all(), expected) << "after the failure of operation " << skip;
      ASSERT_THAT(engine->close(), IsOk());
    }
}

}  // namespace
}  // namespace sluice
