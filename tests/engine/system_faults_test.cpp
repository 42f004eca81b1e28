#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/training.hpp"
#include "io/thread_backend.hpp"
#include "support/child.hpp"
#include "support/faulty_backend.hpp"
#include "support/refusal.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using sim::Child;
using sim::in_child;
using sim::Training;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const StepOptions kStep{.max_norm = 0.5, .gradient_divisor = 2, .micro_batches = 2};

/// Engines over the real system, each in a forked process, so that limits, filters and threads of one test
/// touch no other. What a child has to say is a string: "" is good.
class SystemFaults : public testing::Test {
 protected:
  /// The least budgets, over `drive`, which need not be usable.
  EngineOptions options_on(const std::string& drive) const {
    EngineOptions options;
    options.chunk_elements = 16 << 10;
    options.keep_commits = 0;
    options.max_fetch_bytes = sim::largest_device_bytes(sim::small_model());
    options.device_budget_bytes = options.max_fetch_bytes + 4096;
    options.host_budget_bytes = kLeastHostBytes;
    options.directories = {drive};
    return options;
  }
  EngineOptions options() const { return options_on(directory_.path()); }

  /// Two steps of a whole life. Returns: "", or what went wrong.
  static std::string live(const EngineOptions& options) {
    Training training;
    if (const Status opened = training.open(options); !opened.ok()) return opened.to_string();
    if (training.report.spilled_gradient_bytes == 0) return "the budget is not the least";
    return training.run(2, kStep);
  }
  std::string in_use(const EngineOptions& options) const {
    return in_child([&] { return live(options); });
  }

  std::string path(const std::string& name) const { return directory_.path() + "/" + name; }
  bool is_empty() const { return fs::is_empty(directory_.path()); }

  /// For users that are not root.
  void open_to_all() const { ASSERT_EQ(::chmod(directory_.path().c_str(), 0777), 0); }

  /// 3 x (record + gradient) + 2 x weights of chunks of 16 Ki elements: 3 x (192 + 64) + 2 x 64 KiB.
  static constexpr std::uint64_t kLeastHostBytes = 896 << 10;
  sim::TemporaryDirectory directory_;
};

TEST_F(SystemFaults, AnOrdinaryLifeIsOrdinary) {
  EXPECT_EQ(in_use(options()), "");
  EXPECT_TRUE(is_empty());
}

// What a buffered file leaves in the page cache is dropped by requests of the queue's own. None of them may be left over
// where the loop's thread takes the ring, or ends.
TEST_F(SystemFaults, BufferedStoresAreGoneOnFromAndClosed) {
  EXPECT_EQ(in_child([&]() -> std::string {
              if (!sim::refuse({{.call = SYS_fcntl,
                                 .error = EINVAL,
                                 .argument = 2,
                                 .any_of_bits = O_DIRECT,
                                 .command = F_SETFL}}))
                return "";
              EngineOptions durable = options();
              durable.keep_commits = 1;
              durable.max_user_bytes = 4096;
              durable.host_budget_bytes += 1 << 20;
              for (int life = 0; life < 4; ++life) {
                Training training;
                if (const Status opened = training.open(durable); !opened.ok()) return opened.to_string();
                if (training.report.recovered.has_value() != (life > 0))
                  return "recovered what it should not";
                if (training.engine->stats().direct != "buffered") return "direct";
                if (life == 0) {
                  if (const Status trained = training.train(1, kStep); !trained.ok())
                    return trained.to_string();
                }
                const auto committed = training.engine->commit({}, CommitMode::kWait);
                if (!committed.ok()) return committed.status().to_string();
                if (const Status closed = training.engine->close(); !closed.ok()) return closed.to_string();
              }
              return "";
            }),
            "");
}

TEST_F(SystemFaults, ADirectoryThatIsNoneIsRefusedByName) {
  EXPECT_THAT(in_use(options_on(path("missing"))), AllOf(StartsWith("NotFound"), HasSubstr(path("missing"))));
  fs::create_symlink(path("nowhere"), path("link"));
  EXPECT_THAT(in_use(options_on(path("link"))), AllOf(StartsWith("NotFound"), HasSubstr(path("link"))));
  std::ofstream(path("file")) << "text";
  EXPECT_THAT(in_use(options_on(path("file"))),
              AllOf(StartsWith("FailedPrecondition"), HasSubstr(path("file")), HasSubstr("not a directory")));
}

TEST_F(SystemFaults, ADirectoryThatMayNotBeWrittenIsRefusedByName) {
  fs::create_directory(path("closed"));
  open_to_all();
  ASSERT_EQ(::chmod(path("closed").c_str(), 0555), 0);
  const std::string said =
      in_child([&] { return sim::become_nobody() ? live(options_on(path("closed"))) : std::string("skip"); });
  if (said == "skip") GTEST_SKIP() << "cannot give up root here";
  EXPECT_THAT(said, AllOf(StartsWith("FailedPrecondition"), HasSubstr(path("closed"))));
}

TEST_F(SystemFaults, ALinkToADirectoryAndARelativePathWithALaterChdirWork) {
  fs::create_directory(path("drive"));
  fs::create_directory_symlink(path("drive"), path("link"));
  EXPECT_EQ(in_use(options_on(path("link"))), "");
  EXPECT_EQ(in_child([&]() -> std::string {
              if (::chdir(directory_.path().c_str()) != 0) return "no chdir";
              Training training;
              if (const Status opened = training.open(options_on("drive")); !opened.ok())
                return opened.to_string();
              if (::chdir("/") != 0) return "no chdir";
              return training.run(2, kStep);
            }),
            "");
  EXPECT_TRUE(fs::is_empty(path("drive")));
}

TEST_F(SystemFaults, AFullDriveIsToldBeforeAnyWorkAndLeavesNothing) {
  const std::string said = in_child([&]() -> std::string {
    if (!sim::mount_tmpfs(directory_.path(), 1 << 20)) return "skip";
    const std::string refused = live(options());
    return is_empty() ? refused : "left something: " + refused;
  });
  if (said == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(said, AllOf(StartsWith("NoSpace"), HasSubstr(directory_.path())));
}

TEST_F(SystemFaults, ADriveThatGetsFullLaterDoesNotMatter) {
  const std::string said = in_child([&]() -> std::string {
    if (!sim::mount_tmpfs(directory_.path(), 16 << 20)) return "skip";
    Training training;
    if (const Status opened = training.open(options()); !opened.ok()) return opened.to_string();
    std::ofstream rest(path("others"));
    const std::string block(1 << 20, 'x');
    while (rest.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
    return training.run(2, kStep);
  });
  if (said == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_EQ(said, "");
}

TEST_F(SystemFaults, AForbiddenRingGivesThreadsAndTellsWhyOrIsAnErrorWithTheRemedy) {
  for (const int error : {EPERM, ENOSYS}) {
    const auto forbidden = [&](IoBackend backend) {
      return in_child([&]() -> std::string {
        if (!sim::refuse({{.call = SYS_io_uring_setup, .error = error}})) return "skip";
        EngineOptions asked = options();
        asked.io.backend = backend;
        Training training;
        if (const Status opened = training.open(asked); !opened.ok()) return opened.to_string();
        const Stats stats = training.engine->stats();
        std::string reasons;
        for (const std::string& reason : stats.fallbacks) reasons += reason + "\n";
        const std::string differs = training.run(2, kStep);
        return differs.empty() ? stats.backend + ": " + reasons : differs;
      });
    };
    const std::string fallen_back = forbidden(IoBackend::kAuto);
    if (fallen_back == "skip") GTEST_SKIP() << "no seccomp here";
    const char* const name = error == EPERM ? "EPERM" : "ENOSYS";
    EXPECT_THAT(fallen_back, AllOf(StartsWith("threads: "), HasSubstr("io_uring"), HasSubstr(name)));
    EXPECT_THAT(forbidden(IoBackend::kUring),
                AllOf(StartsWith("Unavailable"), HasSubstr("io_uring"),
                      HasSubstr(error == EPERM ? "kernel.io_uring_disabled" : "Linux 5.11")));
    EXPECT_TRUE(is_empty());
  }
}

TEST_F(SystemFaults, ASmallLockLimitIsEnough) {
  open_to_all();
  const std::string said = in_child([&]() -> std::string {
    const rlimit small{64 << 10, 64 << 10};
    // Root is not bound by the limit.
    if (!sim::become_nobody() || ::setrlimit(RLIMIT_MEMLOCK, &small) != 0) return "skip";
    Training training;
    if (const Status opened = training.open(options()); !opened.ok()) return opened.to_string();
    const Stats stats = training.engine->stats();
    std::string reasons;
    for (const std::string& reason : stats.fallbacks) reasons += reason + "\n";
    const bool told = !stats.registered_memory && reasons.find("ulimit -l") != reasons.npos;
    if (stats.backend == "uring" && !told) return "frames that are not registered, untold: " + reasons;
    return training.run(2, kStep);
  });
  if (said == "skip") GTEST_SKIP() << "cannot give up root here";
  EXPECT_EQ(said, "");
}

TEST_F(SystemFaults, FramesAndFilesAreRegisteredWithTheRing) {
  const auto in_use_with = [&](IoBackend backend) {
    return in_child([&]() -> std::string {
      EngineOptions asked = options();
      asked.io.backend = backend;
      Training training;
      if (const Status opened = training.open(asked); !opened.ok())
        return opened.code() == Code::kUnavailable ? "skip" : opened.to_string();
      const Stats stats = training.engine->stats();
      return fmt::format("{}, {}, memory {}, files {}", stats.backend, stats.ring, stats.registered_memory,
                         stats.registered_files);
    });
  };
  EXPECT_EQ(in_use_with(IoBackend::kThreads), "threads, none, memory false, files false");
  const std::string with_ring = in_use_with(IoBackend::kUring);
  if (with_ring == "skip") GTEST_SKIP() << "io_uring is not allowed here";
  EXPECT_THAT(with_ring, AllOf(StartsWith("uring, "), Not(HasSubstr("none")), HasSubstr("files true")));
}

TEST_F(SystemFaults, NothingOfAClosedEngineStaysInTheKernel) {
  // A file that a ring still holds keeps its blocks: the second engine would meet a full drive.
  const std::string said = in_child([&]() -> std::string {
    if (!sim::mount_tmpfs(directory_.path(), 16 << 20)) return "skip";
    const std::uint64_t before = fs::space(directory_.path()).free;
    for (int life = 0; life < 20; ++life) {
      Training training;
      if (const Status opened = training.open(options()); !opened.ok()) return opened.to_string();
      if (const Status closed = training.engine->close(); !closed.ok()) return closed.to_string();
      const std::uint64_t after = fs::space(directory_.path()).free;
      if (after != before) return fmt::format("{} bytes free before, {} after", before, after);
    }
    return "";
  });
  if (said == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_EQ(said, "");
}

TEST_F(SystemFaults, ALoopThatCannotTakeTheRingOverFailsSealAndLeavesNothing) {
  EXPECT_EQ(in_child([&]() -> std::string {
              std::unique_ptr<io::Backend> real;  // outlives the engine
              engine::Parts parts;
              parts.open_backend = [&](const io::BackendOptions& asked) -> Result<io::SelectedBackend> {
                Result<io::SelectedBackend> opened = io::open_backend(asked);
                if (!opened.ok()) return opened;
                real = std::move(opened->backend);
                auto faulty = std::make_unique<sim::FaultyBackend>(*real, 1);
                faulty->refuse_adoption(Status(Code::kUnavailable, "the ring is forbidden now"));
                opened->backend = std::move(faulty);
                return opened;
              };
              Training training;
              if (const Status opened = training.open(options(), parts);
                  opened.code() != Code::kUnavailable || opened.message() != "the ring is forbidden now")
                return opened.to_string();
              if (!is_empty()) return "files are left";
              training.engine.reset();
              return live(options());
            }),
            "");
}

TEST_F(SystemFaults, TooFewFileDescriptorsAreToldAndFewAreEnough) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers' own checks take descriptors and take their absence for bad memory";
#endif
  for (const rlim_t files : {4U, 6U, 8U, 10U, 12U, 16U, 64U}) {
    SCOPED_TRACE(fmt::format("RLIMIT_NOFILE {}", files));
    const std::string said = in_child([&]() -> std::string {
      const rlimit few{files, files};
      if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return "no limit";
      return live(options());
    });
    if (files >= 64) {
      EXPECT_EQ(said, "");
    } else if (!said.empty()) {
      EXPECT_THAT(said, AllOf(HasSubstr("Too many open files"), Not(StartsWith("died")))) << said;
    }
  }
  // To remove files takes descriptors too: what a run has left for want of them the next one has removed.
  EXPECT_TRUE(is_empty());
}

TEST_F(SystemFaults, AnErrorInMidStepOverRealThreadsLeavesTheStepBefore) {
  for (const io::Op op : {io::Op::kRead, io::Op::kWrite})
    for (const std::uint64_t skip : {9U, 30U, 41U, 77U, 110U}) {
      SCOPED_TRACE(fmt::format("{} {}", op == io::Op::kRead ? "read" : "write", skip));
      EXPECT_EQ(
          in_child([&]() -> std::string {
            std::unique_ptr<io::Backend> threads;  // outlives the engine
            engine::Parts parts;
            parts.open_backend = [&](const io::BackendOptions& asked) -> Result<io::SelectedBackend> {
              Result<io::SelectedBackend> opened = io::open_backend(asked);
              if (!opened.ok()) return opened;
              threads = std::move(opened->backend);
              auto faulty = std::make_unique<sim::FaultyBackend>(*threads, skip);
              faulty->faults().add({.op = op, .error = EIO, .skip = skip, .count = 1});
              opened->backend = std::move(faulty);
              return opened;
            };
            EngineOptions asked = options();
            asked.io.backend = IoBackend::kThreads;
            Training training;
            if (const Status opened = training.open(asked, parts); !opened.ok())
              return opened.code() == Code::kIoError ? "" : opened.to_string();
            int failures = 0;
            for (std::uint64_t step = 0; step < 4;) {
              const Status trained = training.train(step, kStep);
              if (trained.ok()) {
                step_model(training.model, step++, kStep);
              } else if (trained.code() != Code::kIoError || trained.native() != EIO || ++failures > 1) {
                return trained.to_string();
              }
              // The read that is hit may be one of these.
              if (const std::string differs = training.difference(); !differs.empty() && ++failures > 1)
                return differs;
            }
            return training.run(0, kStep);
          }),
          "");
    }
  EXPECT_TRUE(is_empty());
}

/// A process that trains without end from its first step on; it says "training" or what went wrong.
class Trainer : public Child {
 public:
  explicit Trainer(const EngineOptions& options)
      : Child([options]() -> std::string {
          auto* training = new Training;  // for the thread, which nothing ends but SIGKILL
          if (const Status opened = training->open(options); !opened.ok()) return opened.to_string();
          if (const Status trained = training->train(0, kStep); !trained.ok()) return trained.to_string();
          step_model(training->model, 0, kStep);
          std::thread([training] {
            for (std::uint64_t step = 1;; ++step) {
              if (!training->train(step, kStep).ok()) std::abort();
              step_model(training->model, step, kStep);
            }
          }).detach();
          return "training";
        }) {}
};

TEST_F(SystemFaults, AKilledRunLeavesNothingThatTheNextTakesForItsOwn) {
  for (int round = 0; round < 3; ++round) {
    Trainer killed(options());
    ASSERT_EQ(killed.report(), "training");
    killed.kill();
    EXPECT_FALSE(is_empty()) << "the killed run had no time to tidy up, and must not have";
    EngineOptions refusing = options();
    refusing.existing = OnExisting::kRefuse;
    EXPECT_THAT(in_use(refusing), StartsWith("AlreadyExists"));
    // First values are computed, trained and compared: a stale one would show.
    EXPECT_EQ(in_use(options()), "");
    EXPECT_TRUE(is_empty()) << "old files stay";
  }
}

TEST_F(SystemFaults, TheDirectoryOfALiveRunIsRefusedNamingItsProcess) {
  Trainer alive(options());
  ASSERT_EQ(alive.report(), "training");
  EXPECT_THAT(in_use(options()),
              AllOf(StartsWith("FailedPrecondition"), HasSubstr(std::to_string(alive.pid()))));
  alive.kill();
  EXPECT_EQ(in_use(options()), "");
}

TEST_F(SystemFaults, AStormOfSignalsDisturbsNothing) {
  for (const IoBackend backend : {IoBackend::kAuto, IoBackend::kThreads})
    EXPECT_EQ(
        in_child([&]() -> std::string {
          static std::atomic<int> storms = 0;
          struct sigaction action {};
          action.sa_handler = [](int) { ++storms; };  // without SA_RESTART: calls end with EINTR
          const itimerval often{{0, 500}, {0, 500}};
          if (::sigaction(SIGALRM, &action, nullptr) != 0 || ::setitimer(ITIMER_REAL, &often, nullptr) != 0)
            return "no timer";
          EngineOptions asked = options();
          asked.io.backend = backend;
          const std::string said = live(asked);
          return storms > 10 ? said : "no signals came";
        }),
        "");
}

TEST_F(SystemFaults, MoreThreadsThanTheAffinityMaskAllowsAreNotUsed) {
  for (const std::uint32_t asked_threads : {0U, 1U, 64U}) {
    EXPECT_EQ(in_child([&]() -> std::string {
                cpu_set_t allowed;
                if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return "no affinity";
                int first = 0;
                while (!CPU_ISSET(first, &allowed)) ++first;
                cpu_set_t one;
                CPU_ZERO(&one);
                CPU_SET(first, &one);
                if (::sched_setaffinity(0, sizeof one, &one) != 0) return "no affinity";
                EngineOptions asked = options();
                asked.threads = asked_threads;
                Training training;
                if (const Status opened = training.open(asked); !opened.ok()) return opened.to_string();
                if (training.engine->stats().threads != 1)
                  return fmt::format("{} threads on one CPU", training.engine->stats().threads);
                return training.run(2, kStep);
              }),
              "");
  }
}

TEST_F(SystemFaults, AForkedChildIsTurnedAwayAndItsParentGoesOn) {
  EXPECT_EQ(
      in_child([&]() -> std::string {
        Training training;
        if (const Status opened = training.open(options()); !opened.ok()) return opened.to_string();
        if (const Status trained = training.train(0, kStep); !trained.ok()) return trained.to_string();
        step_model(training.model, 0, kStep);
        Result<Pass> pass = training.engine->begin_pass("shared");
        if (!pass.ok()) return pass.status().to_string();
        Result<Lease> lease = pass->fetch({&training.parameters[0], 1});
        if (!lease.ok()) return lease.status().to_string();
        const std::string forked = in_child([&]() -> std::string {
          float value = 0;
          std::string said;
          for (const Status& status :
               {training.engine->begin_step().status(), pass->end(), training.engine->close(),
                training.engine->read(training.parameters[0], View::kMaster, {0, 1}, &value, DType::kF32)})
            said += std::string(code_name(status.code())) + " ";
          // Neither drops anything of the parent's.
          lease->release();
          *pass = Pass();
          training.engine.reset();
          return said;
        });
        if (forked != "Forked Forked Forked Forked ") return forked;
        lease->release();
        if (const Status ended = pass->end(); !ended.ok()) return ended.to_string();
        for (std::uint64_t step = 1; step < 3; ++step) {
          if (const Status trained = training.train(step, kStep); !trained.ok()) return trained.to_string();
          step_model(training.model, step, kStep);
        }
        return training.run(0, kStep);
      }),
      "");
  EXPECT_TRUE(is_empty());
}

}  // namespace
}  // namespace sluice
