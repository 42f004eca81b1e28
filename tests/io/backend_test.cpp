#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "io/open_backend.hpp"
#include "io/thread_backend.hpp"
#include "io/uring_backend.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace sluice::io {
namespace {

using sim::in_child;
using sim::Refusal;
using sim::refuse;
using testing::HasSubstr;

std::string opened_as(BackendKind kind) {
  const Result<SelectedBackend> opened = open_backend({.kind = kind});
  if (!opened.ok()) return opened.status().to_string();
  return std::string(opened->backend->name()) + " " + opened->fallback_reason;
}

std::string opened_under(const Refusal& refusal, BackendKind kind) {
  return in_child([&] { return refuse({refusal}) ? opened_as(kind) : "no seccomp here"; });
}

bool ring_allowed() { return open_uring_backend({.depth = 1}).ok(); }

TEST(OpenBackend, AForbiddenRingGivesThreadsAndTheReason) {
  EXPECT_EQ(opened_under({.call = SYS_io_uring_setup, .error = EPERM}, BackendKind::kAuto),
            "threads io_uring: Operation not permitted (EPERM): allowed by sysctl kernel.io_uring_disabled "
            "or the container's "
            "seccomp profile; using threads");
  EXPECT_THAT(
      opened_under({.call = SYS_io_uring_setup, .error = ENOSYS}, BackendKind::kAuto),
      HasSubstr("threads io_uring: Function not implemented (ENOSYS): offered by Linux 5.11 or later"));
  EXPECT_THAT(opened_under({.call = SYS_io_uring_setup, .error = ENOMEM}, BackendKind::kAuto),
              HasSubstr("ulimit -l"));
}

TEST(OpenBackend, AForbiddenRingThatWasAskedForIsAnError) {
  for (const int error : {EPERM, ENOSYS}) {
    EXPECT_THAT(opened_under({.call = SYS_io_uring_setup, .error = error}, BackendKind::kUring),
                HasSubstr("Unavailable (native " + std::to_string(error) + "): io_uring: "));
  }
  EXPECT_THAT(opened_under({.call = SYS_io_uring_setup, .error = ENOMEM}, BackendKind::kUring),
              HasSubstr("ResourceExhausted"));
}

TEST(OpenBackend, ARingThatOpensButRefusesItsFirstOperationGivesThreads) {
  if (!ring_allowed()) GTEST_SKIP() << "io_uring is forbidden here";
  EXPECT_THAT(opened_under({.call = SYS_io_uring_enter, .error = EPERM}, BackendKind::kAuto),
              HasSubstr("threads io_uring: Operation not permitted"));
}

TEST(OpenBackend, ThreadsAreGivenWhenAskedFor) { EXPECT_EQ(opened_as(BackendKind::kThreads), "threads "); }

TEST(OpenBackend, RefusesOptionsOutOfRange) {
  for (const BackendOptions& options :
       {BackendOptions{.queue_depth = 0}, BackendOptions{.queue_depth = 5000}, BackendOptions{.threads = 0},
        BackendOptions{.threads = 1000}, BackendOptions{.kind = BackendKind::kThreads, .cpus = {-1}},
        BackendOptions{.kind = BackendKind::kThreads, .cpus = {100'000}}}) {
    EXPECT_EQ(open_backend(options).status().code(), Code::kInvalidArgument);
  }
}

TEST(OpenBackend, NamesAreReadBack) {
  for (const BackendKind kind : {BackendKind::kAuto, BackendKind::kUring, BackendKind::kThreads}) {
    EXPECT_EQ(*parse_backend(backend_name(kind)), kind);
  }
  EXPECT_THAT(parse_backend("libaio").status().message(), HasSubstr("\"libaio\""));
}

/// The value of `field` for every thread of this process named sluice-io.
std::vector<std::string> of_workers(const std::string& field) {
  std::vector<std::string> values;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    bool worker = false;
    for (std::string line; std::getline(status, line);) {
      if (line == "Name:\tsluice-io") worker = true;
      if (worker && line.rfind(field + ":", 0) == 0) values.push_back(line.substr(field.size() + 2));
    }
  }
  return values;
}

/// Whether no worker is left: of one that was joined the kernel says so before it takes it off the list.
bool workers_are_gone() {
  const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!of_workers("Name").empty()) {
    if (std::chrono::steady_clock::now() > latest) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST(ThreadBackend, WorkersTakeNoSignalsAndEndWithIt) {
  ASSERT_TRUE(workers_are_gone());
  {
    const Result<std::unique_ptr<Backend>> threads = open_thread_backend({.depth = 8, .threads = 3});
    ASSERT_TRUE(threads.ok());
    const std::vector<std::string> blocked = of_workers("SigBlk");
    ASSERT_EQ(blocked.size(), 3u);
    // SIGKILL (9), SIGSTOP (19) and glibc's own 32 and 33 cannot be blocked.
    for (const std::string& mask : blocked)
      EXPECT_EQ(std::stoull(mask, nullptr, 16) | 0x1'8004'0100u, ~std::uint64_t{0}) << mask;
  }
  EXPECT_TRUE(workers_are_gone());
}

TEST(ThreadBackend, WorkersRunOnTheGivenCpusOnly) {
  cpu_set_t mine;
  ASSERT_EQ(::sched_getaffinity(0, sizeof mine, &mine), 0);
  int last = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) last = CPU_ISSET(cpu, &mine) ? cpu : last;
  const Result<std::unique_ptr<Backend>> threads =
      open_thread_backend({.depth = 8, .threads = 2, .cpus = {last}});
  ASSERT_TRUE(threads.ok()) << threads.status().to_string();
  for (const std::string& allowed : of_workers("Cpus_allowed_list")) EXPECT_EQ(allowed, std::to_string(last));
}

TEST(ThreadBackend, ATakenThreadLimitIsAnError) {
  EXPECT_THAT(in_child([]() -> std::string {
                if (!refuse({{.call = SYS_clone, .error = EAGAIN}, {.call = SYS_clone3, .error = EAGAIN}}))
                  return "no seccomp here";
                return open_backend({.kind = BackendKind::kThreads}).status().to_string();
              }),
              HasSubstr("ResourceExhausted (native 11): starting I/O thread 1 of 16"));
}

}  // namespace
}  // namespace sluice::io
