#include "io/uring_backend.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "io/open_backend.hpp"
#include "io/queue.hpp"
#include "io/uring_setup.hpp"
#include "queue_fixture.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::io {
namespace {

using sim::in_child;
using sim::refuse;
using sim::refuse_at_first;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

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
                opened->backend->wait(opened->backend->now_ns() + 1'000'000, 1);
                opened->backend->wake();
                opened->backend->wait(kNoDeadline, 1);
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

/// A ring, and a directory for its files.
class UringBackendTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 4096;

  void SetUp() override {
    Result<std::unique_ptr<Backend>> opened =
        open_uring_backend({.depth = 8, .registered_piece_bytes = 4 * kBlock});
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    ring_ = std::move(*opened);
    Result<Directory> directory = Directory::open(temporary_.path(), Access::kReadWrite);
    ASSERT_TRUE(directory.ok()) << directory.status().to_string();
    directory_ = std::make_unique<Directory>(std::move(*directory));
  }

  File file(const std::string& name) {
    Result<File> opened =
        File::open(*directory_, name, {.creation = Creation::kIfMissing, .caching = Caching::kBuffered});
    if (!opened.ok()) ADD_FAILURE() << opened.status().to_string();
    return std::move(*opened);
  }
  /// A file of one block of these bytes.
  File file_of(const std::string& name, char value) {
    File made = file(name);
    const std::vector<std::byte> block(kBlock, std::byte(value));
    EXPECT_TRUE(made.write_exact(0, block).ok());
    return made;
  }

  std::int64_t run(Op op, int fd, std::byte* buffer, std::uint32_t bytes = kBlock) {
    Request request{.op = op, .fd = fd, .bytes = bytes, .buffer = buffer};
    EXPECT_EQ(ring_->submit(&request), nullptr);
    while (ring_->reap() == nullptr) ring_->wait(kNoDeadline, 1);
    return request.result;
  }
  char first_byte_read(int fd, std::byte* buffer) {
    EXPECT_EQ(run(Op::kRead, fd, buffer), kBlock);
    return static_cast<char>(*buffer);
  }

  sim::TemporaryDirectory temporary_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Backend> ring_;
};

TEST_F(UringBackendTest, TheRingOfEveryOlderLinuxWorksAdoptsWakesAndRegisters) {
  const File target = file("data");
  Buffer memory(2 * kBlock);
  unsigned features = 0;
  for (std::size_t count = 0; count <= ring_features().size(); ++count) {
    Result<std::unique_ptr<Backend>> older = open_uring_backend({.depth = 8, .features = features});
    ASSERT_TRUE(older.ok()) << older.status().to_string();
    ring_ = std::move(*older);
    SCOPED_TRACE(ring_->in_use().ring);
    for (int turn = 0; turn < 2; ++turn) {
      std::thread([&] {
        ASSERT_TRUE(ring_->adopt().ok());
        ASSERT_TRUE(turn == 1 || ring_->register_files(std::array{target.fd()}).ok());
        EXPECT_EQ(run(Op::kWrite, target.fd(), memory.data()), kBlock);
        EXPECT_EQ(run(Op::kRead, target.fd(), memory.data()), kBlock);
        std::thread([&] { ring_->wake(); }).join();
        ring_->wait(kNoDeadline, 1);
        std::thread waker([&] { ring_->wake(); });
        ring_->wait(kNoDeadline, 1);
        waker.join();
      }).join();
    }
    std::thread([&] { EXPECT_EQ(run(Op::kRead, target.fd(), memory.data()), -EPERM); }).join();
    if (count < ring_features().size()) features |= ring_features()[count].flags;
  }
}

TEST_F(UringBackendTest, TellsWhatItUses) {
  const BackendUse use = ring_->in_use();
  EXPECT_FALSE(use.ring.empty());
  EXPECT_FALSE(use.registered_memory);
  EXPECT_FALSE(use.registered_files);
  // Where the kernel took everything there is nothing to note.
  if (use.ring.find("defer_taskrun") != use.ring.npos) {
    EXPECT_THAT(use.ring, HasSubstr("single_issuer defer_taskrun coop_taskrun"));
  } else {
    EXPECT_THAT(use.notes, ElementsAre(HasSubstr("defer_taskrun (Linux 6.1)")));
  }
}

TEST_F(UringBackendTest, RequestsOfAThreadThatHasNotAdoptedItFailAndTheOwnersGoOn) {
  const File target = file("data");
  Buffer memory(kBlock);
  std::thread([&] {
    EXPECT_EQ(run(Op::kWrite, target.fd(), memory.data()), -EPERM);
    EXPECT_EQ(run(Op::kFlush, target.fd(), nullptr, 0), -EPERM);
    ring_->wait(ring_->now_ns() + 1000, 1);
    EXPECT_FALSE(ring_->register_files(std::array{target.fd()}).ok());
  }).join();
  EXPECT_EQ(run(Op::kWrite, target.fd(), memory.data()), kBlock);
}

TEST_F(UringBackendTest, ADeadlineEndsAWaitForSeveralOfWhichOneHasFinished) {
  const File target = file("data");
  const Descriptor event(::eventfd(0, EFD_CLOEXEC));
  std::uint64_t value = 0;
  Buffer memory(kBlock);
  Request stuck{.op = Op::kRead, .fd = event.get(), .bytes = sizeof value, .buffer = &value};
  Request moves{.op = Op::kWrite, .fd = target.fd(), .bytes = kBlock, .buffer = memory.data()};
  stuck.next = &moves;
  ASSERT_EQ(ring_->submit(&stuck), nullptr);
  Request* finished = nullptr;
  while (finished == nullptr) {
    ring_->wait(ring_->now_ns() + 1'000'000, 2);
    finished = ring_->reap();
  }
  EXPECT_EQ(finished, &moves);
  EXPECT_EQ(moves.result, kBlock);
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
  ring_->wait(kNoDeadline, 2);  // no more than one is held
  EXPECT_EQ(ring_->reap(), &stuck);
}

TEST_F(UringBackendTest, ARegisteredFileIsReachedWhateverItsNumberMeans) {
  // A number that is given to another file tells which way a request goes.
  const File first = file_of("first", 'a');
  const File second = file_of("second", 'b');
  const File plain = file_of("plain", 'c');
  Buffer memory(kBlock);
  ASSERT_TRUE(ring_->register_files(std::array{plain.fd(), first.fd()}).ok());
  EXPECT_TRUE(ring_->in_use().registered_files);
  ASSERT_EQ(::dup2(second.fd(), first.fd()), first.fd());
  EXPECT_EQ(first_byte_read(first.fd(), memory.data()), 'a');
  EXPECT_EQ(first_byte_read(plain.fd(), memory.data()), 'c');
  EXPECT_EQ(first_byte_read(second.fd(), memory.data()), 'b') << "one that is not registered";
  ring_->unregister();
  EXPECT_FALSE(ring_->in_use().registered_files);
  EXPECT_EQ(first_byte_read(first.fd(), memory.data()), 'b');
}

TEST_F(UringBackendTest, EveryOperationReachesARegisteredFile) {
  const File target = file("data");
  ASSERT_TRUE(ring_->register_files(std::array{target.fd()}).ok());
  Buffer memory(kBlock);
  EXPECT_EQ(run(Op::kWrite, target.fd(), memory.data()), kBlock);
  EXPECT_EQ(run(Op::kFlush, target.fd(), nullptr, 0), 0);
  EXPECT_EQ(run(Op::kDropCache, target.fd(), nullptr), 0);
  EXPECT_EQ(run(Op::kRead, target.fd(), memory.data()), kBlock);
}

TEST_F(UringBackendTest, RegisteredMemoryIsReachedWithoutItsMapping) {
  // Other pages under the same address tell which way a request goes.
  const File target = file_of("data", 'a');
  Buffer memory(8 * kBlock);
  memory.fill(1);
  const Status registered = ring_->register_memory(std::array{std::span(memory.data(), memory.size())});
  if (registered.code() == Code::kResourceExhausted) GTEST_SKIP() << registered.message();
  ASSERT_TRUE(registered.ok()) << registered.to_string();
  EXPECT_TRUE(ring_->in_use().registered_memory);
  ASSERT_NE(::mmap(memory.data(), memory.size(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  for (const std::uint32_t block : {0u, 3u, 4u, 7u}) {
    std::byte* const at = memory.data() + block * kBlock;
    EXPECT_EQ(run(Op::kRead, target.fd(), at), kBlock);
    EXPECT_EQ(*at, std::byte{0}) << "block " << block;
  }
  std::byte* const across = memory.data() + 4 * kBlock - 100;
  EXPECT_EQ(run(Op::kRead, target.fd(), across, 200), 200) << "pieces end after four blocks";
  EXPECT_EQ(*across, std::byte{'a'});
  ring_->unregister();
  EXPECT_EQ(first_byte_read(target.fd(), memory.data()), 'a');
}

TEST_F(UringBackendTest, WhatIsRegisteredStaysSoForTheThreadThatAdopts) {
  const File first = file_of("first", 'a');
  const File second = file_of("second", 'b');
  Buffer memory(8 * kBlock);
  ASSERT_TRUE(ring_->register_files(std::array{first.fd()}).ok());
  const bool locked = ring_->register_memory(std::array{std::span(memory.data(), memory.size())}).ok();
  for (int turn = 0; turn < 3; ++turn) {
    std::thread([&] {
      ASSERT_TRUE(ring_->adopt().ok());
      EXPECT_TRUE(ring_->in_use().registered_files);
      EXPECT_EQ(ring_->in_use().registered_memory, locked);
      EXPECT_THAT(ring_->in_use().notes, locked ? testing::Matcher<std::vector<std::string>>(IsEmpty())
                                                : ElementsAre(HasSubstr("ulimit -l")));
      EXPECT_EQ(first_byte_read(first.fd(), memory.data() + 5 * kBlock), 'a');
    }).join();
  }
  ASSERT_TRUE(ring_->adopt().ok());
  ASSERT_EQ(::dup2(second.fd(), first.fd()), first.fd());
  EXPECT_EQ(first_byte_read(first.fd(), memory.data()), 'a');
}

TEST_F(UringBackendTest, NoWakeIsLostWhileThreadsAdoptIt) {
  std::atomic<bool> over = false;
  std::atomic<int> asked = 0, answered = 0;
  std::thread waker([&] {
    for (int wake = 1; !over; ++wake) {
      asked = wake;
      ring_->wake();
      answered.wait(wake - 1);
    }
  });
  for (int turn = 0; turn < 20; ++turn) {
    std::thread([&] {
      ASSERT_TRUE(ring_->adopt().ok());
      for (int wakes = 0; wakes < 20;) {
        ring_->wait(kNoDeadline, 1);
        (void)ring_->reap();
        const int wake = asked;
        if (answered.exchange(wake) == wake) continue;
        ++wakes;
        answered.notify_one();
      }
    }).join();
  }
  over = true;
  answered = -1;  // ends the wait for an answer, if there is one
  answered.notify_one();
  waker.join();
}

/// What a child says that holds a ring and works with it after `change`.
std::string works_after(const std::function<std::string(Backend&)>& change) {
  return in_child([&]() -> std::string {
    const sim::TemporaryDirectory temporary;
    std::filesystem::permissions(temporary.path(), std::filesystem::perms::all);
    const Result<std::unique_ptr<Backend>> ring = open_uring_backend({.depth = 8});
    if (!ring.ok()) return ring.status().to_string();
    const std::string changed = change(**ring);
    return changed + works(**ring, temporary.path());
  });
}

TEST_F(UringBackendTest, AKernelShortOfMemoryOrBusyWhenAskedIsAskedAgain) {
  for (const int error : {EAGAIN, EBUSY}) {
    EXPECT_EQ(works_after([&](Backend&) -> std::string {
                return refuse_at_first({.call = SYS_io_uring_enter, .error = error}, 5) ? "" : "no seccomp: ";
              }),
              "ok");
  }
}

TEST_F(UringBackendTest, AnInterruptedCallIsMadeAgain) {
  EXPECT_EQ(works_after([](Backend&) -> std::string {
              return refuse_at_first({.call = SYS_io_uring_enter, .error = EINTR}, 5) ? "" : "no seccomp: ";
            }),
            "ok");
}

TEST_F(UringBackendTest, AWakeComesThroughWhileTheKernelIsShortOfMemory) {
  EXPECT_EQ(works_after([](Backend& ring) -> std::string {
              if (!refuse_at_first({.call = SYS_io_uring_enter, .error = EAGAIN}, 100)) return "no seccomp: ";
              ring.wake();
              ring.wait(kNoDeadline, 1);
              return "";
            }),
            "ok");
}

TEST_F(UringBackendTest, MemoryThatMayNotBeLockedGoesUnregisteredAndTheRemedyIsNamed) {
  const std::string said = in_child([]() -> std::string {
    const sim::TemporaryDirectory temporary;
    std::filesystem::permissions(temporary.path(), std::filesystem::perms::all);
    const rlimit limit = {64 << 10, 64 << 10};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !sim::become_nobody()) return "no limit";
    // The limit is that of the user who opens the ring.
    const Result<std::unique_ptr<Backend>> ring = open_uring_backend({.depth = 8});
    if (!ring.ok()) return ring.status().to_string();
    const Buffer memory(1 << 20);
    const Status refused = (*ring)->register_memory(std::array{std::span(memory.data(), memory.size())});
    const BackendUse use = (*ring)->in_use();
    std::string notes = use.registered_memory ? "registered" : "";
    for (const std::string& note : use.notes) notes += note + "\n";
    return std::string(code_name(refused.code())) + " " + notes + works(**ring, temporary.path());
  });
  EXPECT_THAT(said,
              testing::StartsWith("ResourceExhausted registering memory: io_uring: Cannot allocate memory "
                                  "(ENOMEM): needs a higher lock limit (ulimit -l)"));
  EXPECT_THAT(said, HasSubstr("not registered"));
  EXPECT_THAT(said, testing::EndsWith("ok"));
}

TEST_F(UringBackendTest, RegistrationThatIsForbiddenIsNotedAndRequestsGoOn) {
  EXPECT_THAT(works_after([](Backend& ring) -> std::string {
                if (!refuse({{.call = SYS_io_uring_register, .error = EPERM}})) return "no seccomp";
                const Buffer memory(8192);
                (void)ring.register_memory(std::array{std::span(memory.data(), memory.size())});
                (void)ring.register_files(std::array{0, 1});
                std::string notes;
                for (const std::string& note : ring.in_use().notes) notes += note + "\n";
                return notes;
              }),
              testing::AllOf(HasSubstr("registering memory: io_uring: Operation not permitted (EPERM)"),
                             HasSubstr("registering files: io_uring: Operation not permitted (EPERM)"),
                             testing::EndsWith("ok")));
}

TEST_F(UringBackendTest, SixtyFourAtOnceWorkUnderALowLockLimit) {
  EXPECT_EQ(in_child([]() -> std::string {
              const sim::TemporaryDirectory temporary;
              std::filesystem::permissions(temporary.path(), std::filesystem::perms::all);
              const rlimit limit = {64 << 10, 64 << 10};
              if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !sim::become_nobody()) return "no limit";
              std::vector<std::unique_ptr<Backend>> rings;
              for (int i = 0; i < 64; ++i) {
                Result<SelectedBackend> opened = open_backend({.queue_depth = 64, .cpus = {}});
                if (!opened.ok()) return opened.status().to_string();
                rings.push_back(std::move(opened->backend));
              }
              for (const std::unique_ptr<Backend>& ring : rings) {
                if (const std::string outcome = works(*ring, temporary.path()); outcome != "ok")
                  return outcome;
              }
              return "ok";
            }),
            "ok");
}

TEST_F(UringBackendTest, ARingThatCannotBeOpenedAnewFailsItsAdoptionAndEveryRequest) {
  EXPECT_THAT(works_after([](Backend& ring) -> std::string {
                std::thread([&] { (void)ring.adopt(); }).join();
                if (!refuse({{.call = SYS_io_uring_setup, .error = EPERM}})) return "no seccomp";
                ring.wake();
                const std::string adopted = ring.adopt().to_string() + "\n" + ring.adopt().to_string() + "\n";
                ring.wait(kNoDeadline, 1);
                ring.unregister();
                return adopted;
              }),
              testing::AllOf(HasSubstr("Unavailable (native 1): io_uring: Operation not permitted"),
                             HasSubstr("IoError (native 1): write of 1 bytes")));
}
}  // namespace
}  // namespace sluice::io
