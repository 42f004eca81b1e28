#include <gmock/gmock.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "io/backend.hpp"
#include "queue_fixture.hpp"
#include "support/child.hpp"

namespace sluice::io {
namespace {

/// What every backend does, asked for without a queue.
class BackendTest : public QueueTest {
 protected:
  static constexpr std::uint32_t kBlock = 4096;

  Backend& backend() { return *inner_; }

  /// Requests of one block each for the blocks of `file` in their order.
  static std::vector<Request> blocks_of(const File& file, Op op, const Buffer& memory) {
    std::vector<Request> requests(memory.size() / kBlock);
    for (std::size_t i = 0; i < requests.size(); ++i)
      requests[i] = {.op = op,
                     .fd = file.fd(),
                     .bytes = kBlock,
                     .offset = i * kBlock,
                     .buffer = memory.data() + i * kBlock};
    return requests;
  }

  static Request* chain(std::vector<Request>& requests) {
    for (std::size_t i = 1; i < requests.size(); ++i) requests[i - 1].next = &requests[i];
    return requests.empty() ? nullptr : requests.data();
  }

  static std::size_t length(const Request* first) {
    std::size_t count = 0;
    for (; first != nullptr; first = first->next) ++count;
    return count;
  }

  /// Submits all of them and reaps until all are back.
  void run_all(std::vector<Request>& requests) {
    Request* rest = chain(requests);
    for (std::size_t back = 0; back < requests.size();) {
      rest = backend().submit(rest);
      backend().wait(kNoDeadline, 1);
      back += length(backend().reap());
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Backends, BackendTest, kEveryBackend, kind_name);

TEST_P(BackendTest, TakesNoMoreThanItsDepthAndTheRestAfterAReap) {
  const File target = file("data");
  const std::uint32_t depth = backend().limits().depth;
  Buffer memory((depth + 10) * std::size_t{kBlock});
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  Request* rest = backend().submit(chain(requests));
  EXPECT_EQ(length(rest), 10u);
  EXPECT_EQ(backend().submit(rest), rest) << "finished requests count until they are reaped";
  std::size_t back = 0;
  while (back < requests.size()) {
    backend().wait(kNoDeadline, 1);
    back += length(backend().reap());
    rest = backend().submit(rest);
  }
  EXPECT_EQ(rest, nullptr);
  for (const Request& request : requests) EXPECT_EQ(request.result, kBlock);
}

TEST_P(BackendTest, EachRequestMovesItsOwnBytes) {
  const File target = file("data");
  Buffer source(300 * std::size_t{kBlock}), read(300 * std::size_t{kBlock});
  source.fill(seed_);
  std::vector<Request> writes = blocks_of(target, Op::kWrite, source);
  std::vector<Request> reads = blocks_of(target, Op::kRead, read);
  std::mt19937_64 random(seed_);
  std::ranges::shuffle(writes, random);
  std::ranges::shuffle(reads, random);
  run_all(writes);
  run_all(reads);
  EXPECT_TRUE(source == read);
}

TEST_P(BackendTest, AFailedRequestHasItsErrnoAndOthersGoOn) {
  const File target = file("data");
  Buffer memory(3 * std::size_t{kBlock});
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  requests[1].fd = -1;
  run_all(requests);
  EXPECT_EQ(requests[0].result, kBlock);
  EXPECT_EQ(requests[1].result, -EBADF);
  EXPECT_EQ(requests[2].result, kBlock);
}

TEST_P(BackendTest, AReadBeyondTheEndMovesNothing) {
  const File target = file("data");
  Buffer memory(kBlock);
  std::vector<Request> requests = blocks_of(target, Op::kRead, memory);
  run_all(requests);
  EXPECT_EQ(requests[0].result, 0);
}

TEST_P(BackendTest, DroppingTheCacheMovesNothingAndTheBytesStay) {
  const File target = file("data");
  Buffer source(64 * std::size_t{kBlock}), read(64 * std::size_t{kBlock});
  source.fill(seed_);
  std::vector<Request> writes = blocks_of(target, Op::kWrite, source);
  run_all(writes);
  std::vector<Request> drops = blocks_of(target, Op::kDropCache, source);
  for (Request& drop : drops) drop.buffer = nullptr;
  run_all(drops);
  for (const Request& drop : drops) EXPECT_EQ(drop.result, 0);
  std::vector<Request> reads = blocks_of(target, Op::kRead, read);
  run_all(reads);
  EXPECT_TRUE(source == read);
}

TEST_P(BackendTest, NoWakeOfManyThreadsIsLost) {
  // Each waker goes on only once its last wake was answered: one that is lost ends the test in its time limit.
  constexpr int kWakers = 4, kWakes = 200;
  const File target = file("data");
  Buffer memory(kBlock);
  std::vector<std::atomic<int>> asked(kWakers), answered(kWakers);
  std::vector<std::thread> wakers;
  for (int waker = 0; waker < kWakers; ++waker) {
    wakers.emplace_back([&, waker] {
      for (int wake = 1; wake <= kWakes; ++wake) {
        asked[waker] = wake;
        backend().wake();
        answered[waker].wait(wake - 1);
      }
    });
  }
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  bool in_flight = false;
  for (int left = kWakers; left > 0;) {
    if (!in_flight) in_flight = backend().submit(chain(requests)) == nullptr;
    backend().wait(kNoDeadline, 1);
    if (backend().reap() != nullptr) in_flight = false;
    for (int waker = 0; waker < kWakers; ++waker) {
      const int wake = asked[waker];
      if (answered[waker].exchange(wake) == wake) continue;
      answered[waker].notify_one();
      if (wake == kWakes) --left;
    }
  }
  for (std::thread& waker : wakers) waker.join();
  while (in_flight) {
    backend().wait(kNoDeadline, 1);
    in_flight = backend().reap() == nullptr;
  }
}

TEST_P(BackendTest, AWaitForSeveralEndsWhenAsManyHaveFinished) {
  const File target = file("data", Caching::kDirect);
  Buffer memory(8 * std::size_t{kBlock});
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  ASSERT_EQ(backend().submit(chain(requests)), nullptr);
  backend().wait(kNoDeadline, 8);
  EXPECT_EQ(length(backend().reap()), 8u);
}

TEST_P(BackendTest, AWaitForSeveralCountsThoseThatWereNotReaped) {
  const File target = file("data", Caching::kDirect);
  Buffer memory(8 * std::size_t{kBlock});
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  Request more = requests.back();  // before the backend has it
  requests[4].fd = -1;             // one that fails is one
  ASSERT_EQ(backend().submit(chain(requests)), nullptr);
  backend().wait(kNoDeadline, 3);
  ASSERT_EQ(backend().submit(&more), nullptr);
  backend().wait(kNoDeadline, 9);
  EXPECT_EQ(length(backend().reap()), 9u);
}

TEST_P(BackendTest, AWaitForMoreThanAreHeldEndsWithTheLast) {
  const File target = file("data", Caching::kDirect);
  Buffer memory(3 * std::size_t{kBlock});
  std::vector<Request> requests = blocks_of(target, Op::kWrite, memory);
  ASSERT_EQ(backend().submit(chain(requests)), nullptr);
  backend().wait(kNoDeadline, 100);
  EXPECT_EQ(length(backend().reap()), 3u);
  backend().wake();
  backend().wait(kNoDeadline, 100);  // nothing is held: a wake is all there can be
}

TEST_P(BackendTest, ThreadsThatAdoptItInTurnUseIt) {
  const File target = file("data");
  Buffer source(40 * std::size_t{kBlock}), read(40 * std::size_t{kBlock});
  for (std::uint64_t turn = 0; turn < 4; ++turn) {
    source.fill(seed_ + turn);
    std::thread([&] {
      EXPECT_TRUE(backend().adopt().ok());
      std::vector<Request> writes = blocks_of(target, Op::kWrite, source);
      run_all(writes);
      std::vector<Request> reads = blocks_of(target, Op::kRead, read);
      run_all(reads);
      backend().wait(backend().now_ns(), 1);
    }).join();
    EXPECT_TRUE(source == read);
  }
  EXPECT_TRUE(backend().adopt().ok());
  EXPECT_TRUE(backend().adopt().ok()) << "its own thread may ask again";
  source.fill(seed_);
  std::vector<Request> writes = blocks_of(target, Op::kWrite, source);
  run_all(writes);
  for (const Request& write : writes) EXPECT_EQ(write.result, kBlock);
}

TEST_P(BackendTest, AWakeBeforeAdoptingIsKept) {
  backend().wake();
  std::thread([&] {
    EXPECT_TRUE(backend().adopt().ok());
    backend().wait(kNoDeadline, 1);
  }).join();
}

TEST_P(BackendTest, DestructionWaitsForHundredsInTheKernel) {
  const std::uint32_t depth = 512;
  std::unique_ptr<Backend> deep;
  if (GetParam() == Kind::kSimulation) {
    deep = std::make_unique<sim::SimBackend>(world_, sim::SimOptions{.depth = depth});
  } else {
    Result<SelectedBackend> opened =
        open_backend({.kind = GetParam() == Kind::kUring ? BackendKind::kUring : BackendKind::kThreads,
                      .queue_depth = depth,
                      .cpus = {}});
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    deep = std::move(opened->backend);
  }
  const File target = file("data", Caching::kDirect);
  Buffer memory(depth * std::size_t{kBlock});
  memory.fill(seed_);
  std::vector<Request> writes = blocks_of(target, Op::kWrite, memory);
  run_all(writes);
  std::vector<Request> reads = blocks_of(target, Op::kRead, memory);
  EXPECT_EQ(deep->submit(chain(reads)), nullptr);
  (void)deep->reap();  // they are in the kernel, but for those that are back
  deep.reset();
  Buffer same(depth * std::size_t{kBlock});
  memory.fill(seed_ + 1);
  same.fill(seed_ + 1);
  EXPECT_TRUE(memory == same) << "a read went on after the end";
}

TEST_P(BackendTest, AForkBesideRequestsInFlightChangesNothing) {
  const File target = file("data", Caching::kDirect);
  Buffer source(64 * std::size_t{kBlock}), read(64 * std::size_t{kBlock});
  for (std::uint64_t round = 0; round < 5; ++round) {
    source.fill(seed_ + round);
    std::vector<Request> writes = blocks_of(target, Op::kWrite, source);
    ASSERT_EQ(backend().submit(chain(writes)), nullptr);
    std::size_t back = length(backend().reap());
    EXPECT_EQ(sim::in_child([] { return std::string("a child"); }), "a child");
    while (back < writes.size()) {
      backend().wait(kNoDeadline, 1);
      back += length(backend().reap());
    }
    for (const Request& write : writes) EXPECT_EQ(write.result, kBlock);
    std::vector<Request> reads = blocks_of(target, Op::kRead, read);
    run_all(reads);
    EXPECT_TRUE(source == read);
  }
}

}  // namespace
}  // namespace sluice::io
