#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "io/open_backend.hpp"
#include "io/queue.hpp"
#include "support/faulty_backend.hpp"
#include "support/sim_backend.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::io {

enum class Kind { kUring, kThreads, kSimulation };

/// Zeros on the coarsest grid, 64 KiB, so that they suit any file.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : bytes_(bytes),
        mapped_(
            ::mmap(nullptr, bytes + kAlignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        data_(reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(mapped_) + kAlignment - 1) /
                                           kAlignment * kAlignment)) {}
  ~Buffer() { ::munmap(mapped_, bytes_ + kAlignment); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  void fill(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::size_t at = 0; at < bytes_; at += sizeof(std::uint64_t)) {
      const std::uint64_t word = random();
      std::memcpy(data_ + at, &word, std::min(sizeof word, bytes_ - at));
    }
  }
  bool operator==(const Buffer& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data_, other.data_, bytes_) == 0;
  }

 private:
  static constexpr std::size_t kAlignment = 1 << 16;
  std::size_t bytes_;
  void* mapped_;
  std::byte* data_;
};

/// A transfer that counts its completions.
struct Counted : Transfer {
  Counted() {
    on_done = [](Transfer& transfer) { ++static_cast<Counted&>(transfer).completions; };
  }
  int completions = 0;
};

/// The same cases over the ring, threads and the simulation; faults are put between the queue and the
/// backend.
class QueueTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSimulation) {
      inner_ = std::make_unique<sim::SimBackend>(world_, sim::SimOptions{});
    } else {
      const bool uring = GetParam() == Kind::kUring;
      Result<SelectedBackend> opened =
          open_backend({.kind = uring ? BackendKind::kUring : BackendKind::kThreads,
                        .queue_depth = 64,
                        .threads = 4,
                        .cpus = {}});
      if (uring && !opened.ok() && opened.status().code() == Code::kUnavailable)
        GTEST_SKIP() << opened.status().message();
      ASSERT_TRUE(opened.ok()) << opened.status().to_string();
      inner_ = std::move(opened->backend);
    }
    backend_ = std::make_unique<sim::FaultyBackend>(*inner_, seed_);
    Result<Directory> directory = Directory::open(temporary_.path(), Access::kReadWrite);
    ASSERT_TRUE(directory.ok()) << directory.status().to_string();
    directory_ = std::make_unique<Directory>(std::move(*directory));
  }

  File file(const std::string& name, Caching caching = Caching::kBuffered) {
    Result<File> opened =
        File::open(*directory_, name,
                   {.access = Access::kReadWrite, .creation = Creation::kIfMissing, .caching = caching});
    if (!opened.ok()) ADD_FAILURE() << opened.status().to_string();
    return std::move(*opened);
  }

  static void describe(Counted& transfer, Op op, const File& file, std::byte* memory, std::uint64_t bytes,
                       std::uint64_t offset) {
    transfer.op = op;
    transfer.file = &file;
    transfer.buffer = memory;
    transfer.bytes = bytes;
    transfer.offset = offset;
  }

  /// Runs one transfer to its end.
  Status run(Queue& queue, Op op, const File& file, std::byte* memory, std::uint64_t bytes,
             std::uint64_t offset) {
    Counted transfer;
    describe(transfer, op, file, memory, bytes, offset);
    queue.submit(transfer);
    queue.drain();
    EXPECT_EQ(transfer.completions, 1);
    if (transfer.status.ok()) {
      EXPECT_EQ(transfer.done_bytes, op == Op::kFlush ? 0 : bytes);
    }
    return transfer.status;
  }

  const std::uint64_t seed_ = sim::seed_or(20261130);
  testing::ScopedTrace trace_{__FILE__, __LINE__, "SLUICE_TEST_SEED=" + std::to_string(seed_)};
  sim::TemporaryDirectory temporary_;
  std::unique_ptr<Directory> directory_;
  sim::SimWorld world_{seed_};
  std::unique_ptr<Backend> inner_;
  std::unique_ptr<sim::FaultyBackend> backend_;
};

inline const auto kEveryBackend = testing::Values(Kind::kUring, Kind::kThreads, Kind::kSimulation);
inline std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kUring ? "uring" : info.param == Kind::kThreads ? "threads" : "simulation";
}

}  // namespace sluice::io
