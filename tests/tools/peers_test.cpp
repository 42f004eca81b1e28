#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <set>

#include "io/directory.hpp"
#include "memory/arena.hpp"
#include "peers/bare_aio.hpp"
#include "peers/bare_uring.hpp"
#include "peers/fio.hpp"
#include "run_command.hpp"

namespace sluice::peers {
namespace {

using tools::ScratchDirectory;

TEST(BlockOrder, EachRoundVisitsEveryBlockOnce) {
  for (const Pattern pattern : {Pattern::kSequential, Pattern::kRandom}) {
    for (const std::uint64_t count : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 9U, 100U, 1023U, 1024U, 1025U}) {
      BlockOrder order(50, count, pattern);
      for (int round = 0; round < 3; ++round) {
        std::set<std::uint64_t> seen;
        for (std::uint64_t i = 0; i < count; ++i) seen.insert(order.next());
        ASSERT_EQ(seen.size(), count);
        ASSERT_EQ(*seen.begin(), 50U);
        ASSERT_EQ(*seen.rbegin(), 50U + count - 1);
      }
    }
  }
}

TEST(BlockOrder, ARandomOneHardlyEverGoesOnToTheNextBlock) {
  BlockOrder order(0, 10'000, Pattern::kRandom);
  int sequential = 0;
  std::uint64_t last = order.next();
  for (int i = 1; i < 10'000; ++i) {
    const std::uint64_t block = order.next();
    sequential += block == last + 1 ? 1 : 0;
    last = block;
  }
  EXPECT_LT(sequential, 50);
}

TEST(BlockChoice, MixedReadsAndWritesAlternateInHalvesOfTheirOwn) {
  for (const Pattern pattern : {Pattern::kSequential, Pattern::kRandom}) {
    BlockChoice choice(Mix::kMixed, pattern, 10, 9);
    for (int i = 0; i < 100; ++i) {
      const BlockChoice::Next next = choice.next();
      ASSERT_EQ(next.write, i % 2 == 1);
      ASSERT_GE(next.block, next.write ? 10U : 14U);
      ASSERT_LT(next.block, next.write ? 14U : 19U);
    }
  }
}

/// A file of 1 MiB and buffers for a loop over it.
class BareLoops : public testing::TestWithParam<Result<Moved> (*)(const Work&)> {
 protected:
  static constexpr std::uint64_t kFileBytes = 1 << 20;
  static constexpr std::uint64_t kBlockBytes = 64 << 10;

  void SetUp() override {
    auto arena = memory::Arena::create({.bytes = 4 * kBlockBytes, .purpose = "test"});
    ASSERT_TRUE(arena.ok());
    arena_ = std::move(*arena);
    fd_ = io::Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_GE(fd_.get(), 0);
    const std::string data(kFileBytes, 'x');
    ASSERT_EQ(::pwrite(fd_.get(), data.data(), data.size(), 0), static_cast<ssize_t>(kFileBytes));
  }

  Work work(Mix mix) const {
    return {.fd = fd_.get(),
            .file_bytes = kFileBytes,
            .block_bytes = kBlockBytes,
            .depth = 4,
            .mix = mix,
            .pattern = Pattern::kRandom,
            .memory = arena_.span(),
            .seconds = 1000,
            .bytes_max = 100 * kBlockBytes};
  }

  bool unavailable(const Result<Moved>& moved) const { return moved.status().code() == Code::kUnavailable; }

  ScratchDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
  io::Descriptor fd_;
  memory::Arena arena_;
};

TEST_P(BareLoops, MoveWhatTheyAreAskedTo) {
  for (const Mix mix : {Mix::kRead, Mix::kWrite, Mix::kMixed}) {
    const auto moved = GetParam()(work(mix));
    if (unavailable(moved)) GTEST_SKIP() << moved.status().to_string();
    ASSERT_TRUE(moved.ok()) << moved.status().to_string();
    EXPECT_EQ(moved->bytes, 100 * kBlockBytes);
    EXPECT_GT(moved->seconds, 0);
    EXPECT_GE(moved->cpu.all(), 0);
    EXPECT_NE(moved->how, "");
  }
}

TEST_P(BareLoops, EndWhenTheyAreStopped) {
  Work endless = work(Mix::kRead);
  endless.bytes_max = UINT64_MAX;
  endless.stopped = [] { return true; };
  const auto moved = GetParam()(endless);
  if (unavailable(moved)) GTEST_SKIP() << moved.status().to_string();
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  EXPECT_EQ(moved->bytes, 4 * kBlockBytes);
}

TEST_P(BareLoops, TellOfShortAndFailedRequests) {
  Work beyond = work(Mix::kRead);
  beyond.file_bytes = 2 * kFileBytes;  // which the file does not have
  const auto moved = GetParam()(beyond);
  if (unavailable(moved)) GTEST_SKIP() << moved.status().to_string();
  EXPECT_EQ(moved.status().code(), Code::kIoError) << moved.status().to_string();
  Work closed = work(Mix::kRead);
  closed.fd = 1'000'000;
  EXPECT_FALSE(GetParam()(closed).ok());
}

INSTANTIATE_TEST_SUITE_P(Both, BareLoops, testing::Values(run_bare_aio, run_bare_uring),
                         [](const auto& test) { return test.param == run_bare_aio ? "aio" : "uring"; });

// What fio 3.33 says of a mixed job, shortened.
constexpr const char* kReport = R"(note: something first
{
  "fio version" : "fio-3.33",
  "jobs" : [
    {
      "jobname" : "sluice",
      "error" : 0,
      "read" : {"io_bytes" : 153092096, "runtime" : 512},
      "write" : {"io_bytes" : 146800640, "runtime" : 500},
      "trim" : {"io_bytes" : 0, "runtime" : 0},
      "job_runtime" : 520,
      "usr_cpu" : 1.5,
      "sys_cpu" : 10.0
    }
  ]
}
)";

TEST(Fio, ItsReportIsRead) {
  const auto moved = parse_fio(kReport);
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  EXPECT_EQ(moved->bytes, 299892736U);
  EXPECT_DOUBLE_EQ(moved->seconds, 0.512);
  EXPECT_DOUBLE_EQ(moved->cpu.user, 0.0078);
  EXPECT_DOUBLE_EQ(moved->cpu.system, 0.052);
}

TEST(Fio, AReportOfSomethingElseIsRefused) {
  const std::string whole = kReport;
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[1]"), std::string("no object"),
        std::string(R"({"jobs":[]})"), std::string(R"({"jobs":[{"error":"x"}]})")}) {
    EXPECT_EQ(parse_fio(text).status().code(), Code::kDataLoss) << text;
  }
  for (std::size_t length = 0; length + 3 < whole.size(); ++length)
    EXPECT_FALSE(parse_fio(std::string_view(whole).substr(0, length)).ok()) << length;
  std::string failed = whole;
  failed.replace(failed.find("\"error\" : 0"), 11, "\"error\" : 5");
  EXPECT_EQ(parse_fio(failed).status().code(), Code::kIoError);
}

/// A PATH that leads to a fio of a script.
class FakeFio : public testing::Test {
 protected:
  FakeFio() { ::setenv("PATH", (directory_.path() + ":" + path_).c_str(), 1); }
  ~FakeFio() override { ::setenv("PATH", path_.c_str(), 1); }

  void install(const std::string& script) {
    const std::string path = directory_.path() + "/fio";
    std::ofstream(path) << "#!/bin/sh\n" << script;
    ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  }

  Result<Moved> run(const Work& work) {
    const auto fio = find_fio();
    EXPECT_EQ(fio, directory_.path() + "/fio");
    return fio ? run_fio(*fio, "io_uring", work) : Result<Moved>(Code::kNotFound, "no fio");
  }

  static Work work() {
    return {.fd = 7, .file_bytes = 1 << 20, .block_bytes = 4096, .depth = 3, .memory = {}, .seconds = 0.25};
  }

  const std::string path_ = std::getenv("PATH");
  ScratchDirectory directory_;
};

TEST_F(FakeFio, IsToldWhatTheOthersDo) {
  install("echo \"$@\" >\"$0.arguments\"\ncat <<END\n" + std::string(kReport) + "END\n");
  const auto moved = run(work());
  ASSERT_TRUE(moved.ok()) << moved.status().to_string();
  EXPECT_EQ(moved->bytes, 299892736U);
  std::string arguments;
  std::getline(std::ifstream(directory_.path() + "/fio.arguments"), arguments);
  const std::string file = "--filename=/proc/" + std::to_string(getpid()) + "/fd/7";
  for (const std::string& word :
       {file, std::string("--rw=read"), std::string("--bs=4096"), std::string("--iodepth=3"),
        std::string("--ioengine=io_uring"), std::string("--fixedbufs=1"), std::string("--runtime=250ms"),
        std::string("--size=1048576")}) {
    EXPECT_THAT(arguments, testing::HasSubstr(word));
  }
}

TEST_F(FakeFio, ItsFailureIsToldWithItsLastWords) {
  install("echo fio: engine not loadable >&2; exit 1\n");
  const auto moved = run(work());
  EXPECT_EQ(moved.status().code(), Code::kUnavailable);
  EXPECT_THAT(moved.status().message(), testing::HasSubstr("engine not loadable"));
  install("kill -9 $$\n");
  EXPECT_EQ(run(work()).status().code(), Code::kUnavailable);
}

TEST_F(FakeFio, IsKilledWhenItIsToStop) {
  install("echo begun; exec tail -f /dev/null\n");
  Work stopped = work();
  stopped.stopped = [] { return true; };
  EXPECT_EQ(run(stopped).status().code(), Code::kAborted);
}

TEST_F(FakeFio, IsNotFoundWhereThereIsNone) {
  ::setenv("PATH", directory_.path().c_str(), 1);
  EXPECT_EQ(find_fio(), std::nullopt);
  ::unsetenv("PATH");
  EXPECT_EQ(find_fio(), std::nullopt);
}

}  // namespace
}  // namespace sluice::peers
