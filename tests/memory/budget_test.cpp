#include "memory/budget.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace sluice::memory {
namespace {

TEST(Budget, ReservationReturnsItsBytesWhenDropped) {
  Budget budget("host budget", 100);
  {
    const Result<Reservation> reservation = budget.reserve(60, "frames");
    ASSERT_TRUE(reservation.ok());
    EXPECT_EQ(reservation->bytes(), 60u);
    EXPECT_EQ(budget.used_bytes(), 60u);
    EXPECT_EQ(budget.free_bytes(), 40u);
  }
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Budget, RefusalSaysNeededGivenAndInUse) {
  Budget budget("host budget", 100);
  const Result<Reservation> first = budget.reserve(60, "frames");
  const Result<Reservation> second = budget.reserve(41, "commit places");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kResourceExhausted);
  EXPECT_EQ(second.status().message(),
            "host budget: 41 bytes needed for commit places, 100 given, 60 in use, 40 left");
  EXPECT_EQ(budget.used_bytes(), 60u);
  EXPECT_TRUE(budget.reserve(40, "commit places").ok());
}

TEST(Budget, UnlimitedNeverWrapsAround) {
  Budget budget("host budget", UINT64_MAX);
  const Result<Reservation> most = budget.reserve(UINT64_MAX - 1, "all");
  ASSERT_TRUE(most.ok());
  EXPECT_FALSE(budget.reserve(2, "more").ok());
  EXPECT_TRUE(budget.reserve(1, "the last").ok());
}

TEST(Budget, MovedReservationGivesBackOnce) {
  Budget budget("host budget", 100);
  Reservation first = std::move(budget.reserve(30, "a")).value();
  Reservation second = std::move(first);
  EXPECT_EQ(first.bytes(), 0u);  // NOLINT(bugprone-use-after-move): the moved-from state is the claim
  EXPECT_EQ(budget.used_bytes(), 30u);
  second = std::move(budget.reserve(50, "b")).value();
  EXPECT_EQ(budget.used_bytes(), 50u);
  second = Reservation();
  EXPECT_EQ(budget.used_bytes(), 0u);
}

TEST(Budget, ReservationMayOutliveItsBudget) {
  std::optional<Budget> budget(std::in_place, "host budget", 100);
  const Result<Reservation> reservation = budget->reserve(100, "all");
  budget.reset();
  EXPECT_EQ(reservation->bytes(), 100u);
}

TEST(Budget, ThreadsNeverHoldMoreThanTheCapacity) {
  Budget budget("host budget", 1000);
  std::atomic<std::uint64_t> held{0};
  std::atomic<bool> exceeded{false};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t bytes = (i * 37 + t * 11) % 400;
        const Result<Reservation> reservation = budget.reserve(bytes, "a share");
        if (!reservation.ok()) continue;
        if (held.fetch_add(bytes) + bytes > 1000) exceeded = true;
        held -= bytes;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(exceeded);
  EXPECT_EQ(budget.used_bytes(), 0u);
}

}  // namespace
}  // namespace sluice::memory
