#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice {

/// A drive and how it is asked.
struct DriveStats {
  std::string directory;
  std::uint32_t piece_bytes = 0;
  std::uint32_t depth = 0;
  double read_bytes_per_s = 0;  ///< as measured before seal(); 0: unknown
  double write_bytes_per_s = 0;
  double mixed_bytes_per_s = 0;
  std::string
      source;        ///< "probe 2026-11-30", "tune 2026-11-30", "default", "options", "options, else default"
  std::string note;  ///< why there is no profile, or it was not kept
};

/// What the engine has done and what it uses. All counters count from seal() and, but for
/// weights_overflowed and steps_since_commit, only rise; bytes are exact.
struct Stats {
  // Work.
  std::uint64_t steps = 0;
  std::uint64_t skipped_steps = 0;
  /// Records whose update was begun during backward, before step(), as if all gradients were finite and nothing clipped,
  /// and kept by step().
  std::uint64_t early_updates = 0;
  /// Records whose update was begun during backward and made again by step(): the guess was wrong, a gradient came
  /// after the expected ones, or the drive failed.
  std::uint64_t redone_updates = 0;
  /// Steps whose decision (skip, clipping, other numbers than begin_step's) made early updates worthless; none are made
  /// after one until 16 steps in a row would have been guessed right.
  std::uint64_t wrong_guesses = 0;
  std::uint64_t fetches = 0;
  std::uint64_t demand_fetches = 0;  ///< fetches that found a parameter neither gathered nor on its way
  std::uint64_t commits = 0;         ///< durable on every rank
  std::uint64_t failed_commits = 0;
  std::uint64_t steps_since_commit = 0;  ///< what a crash now would lose; with keep_commits 0 all of them
  /// Elements whose finite master shows an infinite 16-bit weight; falls when they come back. Those of a store that was
  /// gone on from in place count from the first update or write of their record on, for only that reads it.
  std::uint64_t weights_overflowed = 0;

  // Movement.
  std::uint64_t weight_bytes_read = 0;
  std::uint64_t record_bytes_read = 0;
  std::uint64_t record_bytes_written = 0;
  std::uint64_t gradient_bytes_read = 0;          ///< spilled gradients coming back
  std::uint64_t gradient_bytes_written = 0;       ///< gradients spilled because they do not fit
  std::uint64_t commit_state_bytes_written = 0;   ///< records of host-resident chunks; 0 for state on NVMe
  std::uint64_t commit_record_bytes_written = 0;  ///< slot maps, checksums, counts, user bytes
  std::uint64_t device_bytes_in = 0;              ///< host to device
  std::uint64_t io_retries = 0;                   ///< short transfers resumed, EINTR, EAGAIN

  // Time that the trainer's threads waited, in seconds.
  double fetch_wait_seconds = 0;
  double gradient_wait_seconds = 0;
  double step_seconds = 0;
  double commit_wait_seconds =
      0;                      ///< of the above and of write(), for a commit in flight; and of commit() itself
  double commit_seconds = 0;  ///< from commit() to durable, in the background or not

  // Memory and drives.
  std::uint64_t host_reserved_bytes = 0;
  std::uint64_t device_reserved_bytes = 0;
  std::uint64_t nvme_reserved_bytes = 0;
  std::uint64_t hugetlb_bytes = 0;  ///< of the reservations, what comes from the hugetlb pool (not in VmRSS)
  std::uint64_t state_bytes = 0;    ///< of all planes but the gradient, this rank's
  std::uint64_t chunks = 0;
  std::uint64_t resident_chunks = 0;  ///< whole records in host frames

  // What is in use.
  std::string backend;  ///< "uring", "threads", "none"
  std::string ring;     ///< what the ring uses of io_uring: "single_issuer defer_taskrun …"; "none"
  bool registered_memory = false;  ///< host frames, with the ring
  bool registered_files = false;   ///< containers and spilled gradients, with the ring
  std::vector<DriveStats> drives;  ///< in the order of the directories
  std::string direct;              ///< "O_DIRECT", "buffered", "none"
  std::string host_backing;        ///< "huge pages", "4 KiB pages"
  std::string device_backing;
  std::string numa;                    ///< where arena and loop are: "1 node", "node 1 of 2: arena and loop"
  std::string isa;                     ///< of the kernels: "avx512", "avx2" …
  std::uint32_t threads = 0;           ///< of the optimizer
  std::string crash_cost;              ///< what a crash would lose, in words
  std::vector<std::string> fallbacks;  ///< what was asked or hoped for and is not in use, with the reason
};

}  // namespace sluice
