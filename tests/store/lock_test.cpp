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

TEST(Owner, NonsenseIsNobody) {
  for (const char* text : {"", "pid", "pid x\nstart 1\nnonce 1\n", "1 2 3", "pid 1\nstart 2\n"}) {
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
