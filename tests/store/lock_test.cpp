#include "store/lock.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "store/names.hpp"
#include "support/child.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::store {
namespace {

using sim::Child;
using testing::HasSubstr;

class LockTest : public testing::Test {
 protected:
  io::Directory open() const {
    auto directory = io::Directory::open(temporary_.path(), io::Access::kReadWrite);
    EXPECT_TRUE(directory.ok()) << directory.status().to_string();
    return std::move(*directory);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(std::filesystem::path(temporary_.path()) / name) << text;
  }
  /// What a child that holds the lock says: "" when all went well.
  std::string hold() const {
    const auto directory = open();
    auto lock = Lock::acquire(directory, io::Creation::kIfMissing);
    if (!lock.ok()) return lock.status().to_string();
    const Status status = lock->sign(Owner::make());
    new Lock(std::move(*lock));  // held until the process ends
    return status.to_string();
  }

  sim::TemporaryDirectory temporary_;
};

TEST(Owner, ComesBackAsItWas) {
  const Owner owner = Owner::make();
  EXPECT_EQ(parse_owner(encode(owner)), owner);
  EXPECT_TRUE(owner.is_this_process());
  EXPECT_NE(owner.nonce, Owner::make().nonce);
  EXPECT_GT(owner.start_ticks, 0u);
}

TEST(Owner, ReusedPidIsAnotherProcess) {
  Owner owner = Owner::make();
  owner.start_ticks -= 1;
  EXPECT_FALSE(owner.is_this_process());
}

TEST(Owner, PidAndStartOfAnEarlierBootAreAnotherProcess) {
  Owner owner = Owner::make();
  ASSERT_FALSE(owner.boot_id.empty());
  EXPECT_TRUE(owner.lives());
  owner.boot_id.back() = owner.boot_id.back() == '0' ? '1' : '0';
  EXPECT_FALSE(owner.is_this_process());
  EXPECT_FALSE(owner.lives());
  owner.boot_id.clear();
  EXPECT_TRUE(owner.is_this_process()) << "unknown is no other boot";
}

TEST(Owner, UnknownStartIsNotThisProcessByItsPidAlone) {
  Owner owner = Owner::make();
  owner.start_ticks = 0;
  EXPECT_FALSE(owner.is_this_process());
  EXPECT_FALSE(owner.lives());
}

TEST(Owner, LivesAsLongAsItsProcess) {
  Child child([] { return encode(Owner::make()); });
  const std::optional<Owner> owner = parse_owner(child.report());
  ASSERT_TRUE(owner.has_value());
  Owner reused = *owner, unknown = *owner;
  reused.start_ticks += 1;
  unknown.start_ticks = 0;
  EXPECT_TRUE(owner->lives());
  EXPECT_FALSE(reused.lives());
  EXPECT_TRUE(unknown.lives()) << "as far as can be seen";
  child.kill();
  EXPECT_FALSE(owner->lives());
  EXPECT_FALSE(unknown.lives());
}

TEST(Owner, ThreeLinesOfAnEarlierBuildAreUnderstood) {
  const std::optional<Owner> owner = parse_owner("pid 12\nstart 34\nnonce 00000000000000ff\n");
  EXPECT_EQ(owner, (Owner{.pid = 12, .start_ticks = 34, .nonce = 255}));
  EXPECT_EQ(encode(*owner), "pid 12\nstart 34\nnonce 00000000000000ff\n");
}

TEST(Owner, NonsenseIsNobody) {
  for (const std::string& text :
       {std::string(), std::string("pid"), std::string("pid x\nstart 1\nnonce 1\n"), std::string("1 2 3"),
        std::string("pid 1\nstart 2\n"), std::string("pid 1\nstart 2\nnonce 3\nboot"),
        std::string("pid 1\nstart 2\nnonce 3\nroot x\n"),
        "pid 1\nstart 2\nnonce 3\nboot " + std::string(65, 'a') + "\n"}) {
    EXPECT_EQ(parse_owner(text), std::nullopt) << text;
  }
}

TEST_F(LockTest, SecondEngineOfThisProcessIsRefusedByName) {
  const auto directory = open();
  const Owner owner = Owner::make();
  auto lock = Lock::acquire(directory, io::Creation::kExclusive);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  ASSERT_TRUE(lock->sign(owner).ok());

  const auto second = Lock::acquire(directory, io::Creation::kIfMissing);
  ASSERT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(second.status().message(), HasSubstr("another engine of this process"));
  EXPECT_THAT(second.status().message(), HasSubstr(std::to_string(::getpid())));

  // The refusal has not opened `lock`: its closing would have dropped the record lock of this process.
  Child other([this] { return hold(); });
  EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
}

TEST_F(LockTest, LiveOwnerIsToldFromADeadOneAndFromNone) {
  const auto owner_of = [this] {
    const auto owner = live_owner(open());
    EXPECT_TRUE(owner.ok()) << owner.status().to_string();
    return owner.ok() ? *owner : std::nullopt;
  };
  EXPECT_EQ(owner_of(), std::nullopt) << "no lock at all";
  {
    Child child([this] { return hold(); });
    ASSERT_EQ(child.report(), "Ok");
    const std::optional<Owner> owner = owner_of();
    ASSERT_TRUE(owner.has_value());
    EXPECT_EQ(owner->pid, child.pid());
    EXPECT_NE(owner->nonce, 0U);
    child.kill();
  }
  EXPECT_EQ(owner_of(), std::nullopt) << "its signature is still there";

  auto lock = Lock::acquire(open(), io::Creation::kNever);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  const Owner mine = Owner::make();
  ASSERT_TRUE(lock->sign(mine).ok());
  EXPECT_EQ(owner_of(), mine);
  // Asking has not dropped this process's record lock, which another one still sees.
  EXPECT_EQ(sim::in_child([this] {
              const auto owner = live_owner(open());
              return std::to_string(owner.ok() && *owner ? (*owner)->pid : -1);
            }),
            std::to_string(::getpid()));
}

TEST_F(LockTest, DroppedLockTakesItsSignatureBack) {
  const auto directory = open();
  {
    auto lock = Lock::acquire(directory, io::Creation::kExclusive);
    ASSERT_TRUE(lock.ok()) << lock.status().to_string();
    ASSERT_TRUE(lock->sign(Owner::make()).ok());
    const Lock moved = std::move(*lock);
    EXPECT_EQ(Lock::acquire(directory, io::Creation::kNever).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_TRUE(Lock::acquire(directory, io::Creation::kNever).ok());
}

TEST_F(LockTest, DroppedLockLeavesTheSignatureOfItsNextOwner) {
  const auto directory = open();
  Owner next = Owner::make();
  next.pid += 1;
  {
    auto lock = Lock::acquire(directory, io::Creation::kExclusive);
    ASSERT_TRUE(lock->sign(Owner::make()).ok());
    write(kOwnerName, encode(next));
  }
  std::ifstream file(std::filesystem::path(temporary_.path()) / kOwnerName);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), encode(next));
}

TEST_F(LockTest, DraftOfADeadOwnerIsNoObstacle) {
  const auto directory = open();
  write(kOwnerDraftName, std::string(300, 'x'));
  auto lock = Lock::acquire(directory, io::Creation::kExclusive);
  const Owner owner = Owner::make();
  ASSERT_TRUE(lock->sign(owner).ok());
  std::ifstream file(std::filesystem::path(temporary_.path()) / kOwnerName);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), encode(owner));
}

TEST_F(LockTest, EngineOfAnotherProcessIsNamed) {
  Child child([this] { return hold(); });
  ASSERT_EQ(child.report(), "Ok");
  const auto lock = Lock::acquire(open(), io::Creation::kIfMissing);
  ASSERT_EQ(lock.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(lock.status().message(),
              HasSubstr("in use by process " + std::to_string(child.pid()) + " (engine "));
}

TEST_F(LockTest, DeadOwnerIsTakenOver) {
  Child child([this] { return hold(); });
  ASSERT_EQ(child.report(), "Ok");
  child.kill();
  const auto directory = open();
  auto lock = Lock::acquire(directory, io::Creation::kIfMissing);
  ASSERT_TRUE(lock.ok()) << lock.status().to_string();
  EXPECT_TRUE(lock->sign(Owner::make()).ok());
  EXPECT_EQ(Lock::acquire(directory, io::Creation::kIfMissing).status().code(), Code::kFailedPrecondition);
}

TEST_F(LockTest, ForkedChildThatEndsLeavesTheLock) {
  const auto directory = open();
  auto lock = Lock::acquire(directory, io::Creation::kExclusive);
  ASSERT_TRUE(lock.ok());
  ASSERT_TRUE(lock->sign(Owner::make()).ok());
  Child inheriting([&] {
    const Lock mine = std::move(*lock);  // closed here, in the child
    return std::string("closed");
  });
  EXPECT_EQ(inheriting.report(), "closed");
  inheriting.kill();
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(temporary_.path()) / kOwnerName));
  Child other([this] { return hold(); });
  EXPECT_THAT(other.report(), HasSubstr("in use by process " + std::to_string(::getpid())));
}

TEST_F(LockTest, NonsenseOwnerStillLeavesTheRecordLock) {
  Child child([this] { return hold(); });
  ASSERT_EQ(child.report(), "Ok");
  write(kOwnerName, "nonsense");
  const auto lock = Lock::acquire(open(), io::Creation::kIfMissing);
  EXPECT_THAT(lock.status().message(), HasSubstr("in use by process " + std::to_string(child.pid())));
}

TEST_F(LockTest, MissingLockIsMadeOnlyOnRequest) {
  EXPECT_EQ(Lock::acquire(open(), io::Creation::kNever).status().code(), Code::kNotFound);
  EXPECT_TRUE(std::filesystem::is_empty(temporary_.path()));
}

TEST_F(LockTest, LockThatIsGoneIsNotMadeAgainWhileItsOwnerLives) {
  Child child([this] { return hold(); });
  ASSERT_EQ(child.report(), "Ok");
  std::filesystem::remove(std::filesystem::path(temporary_.path()) / kLockName);
  const Status status = Lock::acquire(open(), io::Creation::kIfMissing).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("in use by process " + std::to_string(child.pid())));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(temporary_.path()) / kLockName));
  child.kill();
  EXPECT_TRUE(Lock::acquire(open(), io::Creation::kIfMissing).ok());
}

TEST_F(LockTest, EnginesOfOneProcessAreKeptApartWithoutProc) {
  Child child([this] {
    if (!sim::mount_tmpfs("/proc", 1 << 20)) return std::string("skip");
    const Owner owner = Owner::make();
    if (owner.start_ticks < Owner::kNoTicks || !owner.boot_id.empty()) return std::string("/proc is there");
    Owner by_pid_alone = owner;
    by_pid_alone.start_ticks = 0;
    write(kOwnerName, encode(by_pid_alone));
    const auto directory = open();
    auto lock = Lock::acquire(directory, io::Creation::kIfMissing);
    if (!lock.ok()) return lock.status().to_string();
    if (!lock->sign(owner).ok() || parse_owner(encode(owner)) != owner) return std::string("not signed");
    return Lock::acquire(directory, io::Creation::kIfMissing).status().to_string();
  });
  if (child.report() == "skip") GTEST_SKIP() << "cannot mount a tmpfs here";
  EXPECT_THAT(child.report(), HasSubstr("another engine of this process"));
}

TEST_F(LockTest, LinkIsNotFollowed) {
  const auto elsewhere = std::filesystem::path(temporary_.path()) / "elsewhere";
  write("elsewhere", "mine");
  std::filesystem::create_symlink(elsewhere, std::filesystem::path(temporary_.path()) / kLockName);
  EXPECT_EQ(Lock::acquire(open(), io::Creation::kIfMissing).status().code(), Code::kFailedPrecondition);
}

TEST_F(LockTest, NamesGuardKeepsThreadsOfOneProcessApart) {
  const auto first = open(), second = open();
  int inside = 0, inside_max = 0;
  const auto work = [&](const io::Directory& directory) {
    for (int i = 0; i < 20; ++i) {
      const auto guard = NamesGuard::acquire(directory);
      ASSERT_TRUE(guard.ok());
      inside_max = std::max(inside_max, ++inside);
      std::this_thread::yield();
      --inside;
    }
  };
  std::thread other([&] { work(second); });
  work(first);
  other.join();
  EXPECT_EQ(inside_max, 1);
}

}  // namespace
}  // namespace sluice::store
