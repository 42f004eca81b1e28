#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "io/open_backend.hpp"
#include "io/queue.hpp"
#include "io/thread_backend.hpp"
#include "io/uring_backend.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"
#include "support/temporary_directory.hpp"

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

/// Writes and reads one byte. Returns: "ok" or what went wrong.
std::string works(Backend& backend, const std::string& path) {
  const Result<Directory> directory = Directory::open(path, Access::kReadWrite);
  if (!directory.ok()) return directory.status().to_string();
  const Result<File> file =
      File::open(*directory, "byte", {.creation = Creation::kIfMissing, .caching = Caching::kBuffered});
  if (!file.ok()) return file.status().to_string();
  Queue queue(backend, {});
  std::byte byte{42};
  Transfer transfer;
  transfer.file = &*file;
  transfer.buffer = &byte;
  transfer.bytes = 1;
  for (const Op op : {Op::kWrite, Op::kRead}) {
    transfer.op = op;
    queue.submit(transfer);
    queue.drain();
    if (!transfer.status.ok()) return transfer.status.to_string();
  }
  return byte == std::byte{42} ? "ok" : "another byte";
}

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

TEST(UringBackend, WorksUnderALockLimitOf64KiB) {
  if (!ring_allowed()) GTEST_SKIP() << "io_uring is forbidden here";
  EXPECT_EQ(in_child([]() -> std::string {
              const sim::TemporaryDirectory temporary;
              std::filesystem::permissions(temporary.path(), std::filesystem::perms::all);
              const rlimit limit = {64 << 10, 64 << 10};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "no limit";
              if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return "still root";
              const Result<SelectedBackend> opened = open_backend({.kind = BackendKind::kUring});
              return opened.ok() ? works(*opened->backend, temporary.path()) : opened.status().to_string();
            }),
            "ok");
}

TEST(UringBackend, ARingForbiddenLaterFailsRequestsAndStillWaitsAndWakes) {
  if (!ring_allowed()) GTEST_SKIP() << "io_uring is forbidden here";
  EXPECT_THAT(in_child([]() -> std::string {
                const sim::TemporaryDirectory temporary;
                const Result<SelectedBackend> opened = open_backend({.kind = BackendKind::kUring});
                if (!opened.ok() || !refuse({{.call = SYS_io_uring_enter, .error = EPERM}}))
                  return "no ring or no seccomp";
                opened->backend->wait(opened->backend->now_ns() + 1'000'000);
                opened->backend->wake();
                opened->backend->wait(kNoDeadline);
                return works(*opened->backend, temporary.path());
              }),
              HasSubstr("IoError (native 1): write of 1 bytes"));
}

TEST(UringBackend, ItsDescriptorsAreClosedOnExec) {
  const Result<std::unique_ptr<Backend>> ring = open_uring_backend({.depth = 8});
  if (!ring.ok()) GTEST_SKIP() << ring.status().message();
  int seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    if (what.find("io_uring") == what.npos && what.find("eventfd") == what.npos) continue;
    ++seen;
    EXPECT_TRUE(::fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC) << what;
  }
  EXPECT_GE(seen, 2);
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

TEST(ThreadBackend, WorkersTakeNoSignalsAndEndWithIt) {
  {
    const Result<std::unique_ptr<Backend>> threads = open_thread_backend({.depth = 8, .threads = 3});
    ASSERT_TRUE(threads.ok());
    const std::vector<std::string> blocked = of_workers("SigBlk");
    ASSERT_EQ(blocked.size(), 3u);
    // SIGKILL (9), SIGSTOP (19) and glibc's own 32 and 33 cannot be blocked.
    for (const std::string& mask : blocked)
      EXPECT_EQ(std::stoull(mask, nullptr, 16) | 0x1'8004'0100u, ~std::uint64_t{0}) << mask;
  }
  EXPECT_TRUE(of_workers("Name").empty());
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
