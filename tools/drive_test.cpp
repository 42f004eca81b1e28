#include "tools/drive_test.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "io/queue.hpp"
#include "memory/arena.hpp"
#include "sluice/options.hpp"
#include "tools/sizes.hpp"
#include "tools/test_pattern.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kLeastBlockBytes = 4096;
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kMostDepth = 4096;
constexpr double kMostSeconds = 86400;
constexpr double kTuneSeconds = 1;
constexpr std::size_t kSlices = 10;
constexpr double kNsPerSecond = 1e9;

Status refuse(std::string_view option, std::string_view value, std::string_view accepted) {
  return {Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", option, value, accepted)};
}

// Each of the depth requests has a block of its own; reads and writes that are mixed have halves of the file.
std::uint64_t least_size_bytes(const DriveTestOptions& options) {
  const std::uint64_t halves = options.op == DriveOp::kMixed ? 2 : 1;
  return options.directories.size() * options.depth * options.block_bytes * halves;
}

Status validate(const DriveTestOptions& options) {
  if (options.directories.empty()) return refuse("--dir", "missing", "a directory a drive");
  if (options.block_bytes < kLeastBlockBytes || options.block_bytes > kMostBlockBytes ||
      options.block_bytes % kLeastBlockBytes != 0) {
    return refuse("--block", size_text(options.block_bytes), "a multiple of 4 KiB from 4 KiB to 1 GiB");
  }
  if (options.depth < 1 || options.depth > kMostDepth) {
    return refuse("--depth", std::to_string(options.depth), "1 to 4096");
  }
  const std::uint64_t least = least_size_bytes(options);
  if (options.size_bytes < least || options.size_bytes == kUnlimited) {
    return refuse("--size", size_text(options.size_bytes),
                  fmt::format("at least {} (drives x depth x block{}) and room on the drive",
                              size_text(least), options.op == DriveOp::kMixed ? " x 2" : ""));
  }
  if (!(options.seconds > 0 && options.seconds <= kMostSeconds)) {
    return refuse("--seconds", fmt::format("{}", options.seconds), "more than 0, at most 86400");
  }
  return {};
}

double cpu_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// A drive's file and where the next read and the next write go.
struct Drive {
  explicit Drive(io::File open_file) : file(std::move(open_file)) {}
  io::File file;
  std::uint64_t next_read = 0;
  std::uint64_t next_write = 0;
  std::vector<std::uint32_t> generations;  // a block; how often it was written
};

class DriveTest {
 public:
  explicit DriveTest(const DriveTestOptions& options) : options_(options) {}

  Status prepare();
  Status fill();
  Status measure();
  Status verify();
  DriveTestReport report() { return std::move(report_); }

 private:
  /// One of the requests that are kept in flight.
  struct Slot : io::Transfer {
    std::int64_t started_ns = 0;
    std::uint64_t block = 0;
  };
  using Step = Status (DriveTest::*)(Slot&);
  using Choose = bool (DriveTest::*)(Slot&);

  Status run(Choose choose, Step finish);
  bool give(Slot& slot);
  static void on_done(io::Transfer& transfer);

  bool choose_fill(Slot& slot);
  bool choose_timed(Slot& slot);
  bool choose_verify(Slot& slot);
  bool read_block(Slot& slot, std::uint64_t block);
  bool write_block(Slot& slot, std::uint64_t block);
  Status finish_timed(Slot& slot);
  Status finish_verify(Slot& slot);
  Status finish_nothing(Slot&) { return {}; }

  std::span<std::byte> buffer(const Slot& slot) const { return {slot.buffer, options_.block_bytes}; }

  const DriveTestOptions& options_;
  DriveTestReport report_;
  std::uint64_t blocks_ = 0;  // of each drive
  std::vector<Drive> drives_;
  memory::Arena arena_;
  std::unique_ptr<io::Backend> backend_;
  std::vector<Slot> slots_;
  std::optional<io::Queue> queue_;  // destroyed first: it waits for the slots

  Choose choose_ = nullptr;
  Step finish_ = nullptr;
  Status failure_;
  std::int64_t started_ns_ = 0;
  std::int64_t slice_ns_ = 0;
  std::array<std::uint64_t, kSlices> slice_bytes_{};
};

Status DriveTest::prepare() {
  blocks_ = options_.size_bytes / options_.directories.size() / options_.block_bytes;
  report_.direct = true;
  for (const std::string& path : options_.directories) {
    auto directory = io::Directory::open(path, io::Access::kReadWrite);
    if (!directory.ok()) return directory.status();
    const std::string name = fmt::format("sluice-nvme-{}-{}", getpid(), drives_.size());
    auto file = io::File::open(*directory, name, {.creation = io::Creation::kExclusive});
    if (!file.ok()) return file.status();
    // From here on the kernel removes the data with the last descriptor, however this process ends.
    SLUICE_RETURN_IF_ERROR(directory->remove(name));
    SLUICE_RETURN_IF_ERROR(file->preallocate(blocks_ * options_.block_bytes));
    if (options_.block_bytes % file->grid().offset_bytes != 0) {
      return refuse("--block", size_text(options_.block_bytes),
                    fmt::format("multiples of {} on {}", size_text(file->grid().offset_bytes), path));
    }
    if (!file->direct()) {
      report_.direct = false;
      report_.fallbacks.push_back(fmt::format("{}: buffered: {}", path, file->fallback_reason()));
    }
    drives_.emplace_back(std::move(file).value()).generations.resize(blocks_);
  }

  const auto drives = static_cast<std::uint32_t>(drives_.size());
  const std::size_t count = std::size_t{drives} * options_.depth;
  auto arena = memory::Arena::create(
      {.bytes = count * options_.block_bytes, .purpose = "buffers of the drive test", .prefault_threads = 2});
  if (!arena.ok()) return arena.status();
  arena_ = std::move(arena).value();
  report_.buffer_pages = arena_.backing();

  auto selected =
      io::open_backend({.kind = options_.backend,
                        .queue_depth = static_cast<std::uint32_t>(std::min<std::size_t>(count, kMostDepth)),
                        .threads = static_cast<std::uint32_t>(std::min<std::size_t>(count, 64)),
                        .cpus = {}});
  if (!selected.ok()) return selected.status();
  backend_ = std::move(selected->backend);
  report_.backend = io::backend_name(selected->kind);
  if (!selected->fallback_reason.empty()) report_.fallbacks.push_back(selected->fallback_reason);
  const std::array regions = {arena_.span()};
  if (const Status status = backend_->register_memory(regions); status.ok()) {
    report_.registered_buffers = true;
  } else if (selected->kind == io::BackendKind::kUring) {
    report_.fallbacks.push_back(status.message());
  }

  slots_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    Slot& slot = slots_[i];
    slot.drive = static_cast<std::uint32_t>(i % drives);
    slot.file = &drives_[slot.drive].file;
    slot.buffer = arena_.span().data() + i * options_.block_bytes;
    slot.bytes = options_.block_bytes;
    slot.on_done = on_done;
    slot.owner = this;
  }
  const io::DriveSettings settings{.piece_bytes = static_cast<std::uint32_t>(options_.block_bytes),
                                   .depth = options_.depth};
  queue_.emplace(*backend_, io::QueueOptions{.drives = {drives, settings}});
  return {};
}

// Keeps every slot busy with what `choose` gives until it gives nothing more.
Status DriveTest::run(Choose choose, Step finish) {
  choose_ = choose;
  finish_ = finish;
  for (Drive& drive : drives_) drive.next_read = drive.next_write = 0;
  for (Slot& slot : slots_) {
    if (!give(slot)) break;
  }
  while (queue_->in_flight() > 0) {
    queue_->wait();
    queue_->poll();
  }
  return failure_;
}

bool DriveTest::give(Slot& slot) {
  if (!failure_.ok() || !(this->*choose_)(slot)) return false;
  slot.offset = slot.block * options_.block_bytes;
  slot.started_ns = io::steady_now_ns();
  queue_->submit(slot);
  return true;
}

void DriveTest::on_done(io::Transfer& transfer) {
  Slot& slot = static_cast<Slot&>(transfer);
  DriveTest& test = *static_cast<DriveTest*>(slot.owner);
  Status status = slot.status;
  if (status.ok()) status = (test.*test.finish_)(slot);
  if (!status.ok() && test.failure_.ok()) test.failure_ = status;
  test.give(slot);
}

bool DriveTest::read_block(Slot& slot, std::uint64_t block) {
  slot.op = io::Op::kRead;
  slot.priority = io::Priority::kDemand;
  slot.block = block;
  return true;
}

bool DriveTest::write_block(Slot& slot, std::uint64_t block) {
  // One priority for both: the test measures the drive, not the order of classes.
  slot.op = io::Op::kWrite;
  slot.priority = io::Priority::kDemand;
  slot.block = block;
  stamp(buffer(slot), {slot.drive, block, ++drives_[slot.drive].generations[block]});
  return true;
}

bool DriveTest::choose_fill(Slot& slot) {
  Drive& drive = drives_[slot.drive];
  return drive.next_write < blocks_ && write_block(slot, drive.next_write++);
}

bool DriveTest::choose_verify(Slot& slot) {
  Drive& drive = drives_[slot.drive];
  return drive.next_read < blocks_ && read_block(slot, drive.next_read++);
}

bool DriveTest::choose_timed(Slot& slot) {
  if (io::steady_now_ns() - started_ns_ >= slice_ns_ * static_cast<std::int64_t>(kSlices)) return false;
  Drive& drive = drives_[slot.drive];
  switch (options_.op) {
    case DriveOp::kRead:
      return read_block(slot, drive.next_read++ % blocks_);
    case DriveOp::kWrite:
      return write_block(slot, drive.next_write++ % blocks_);
    case DriveOp::kMixed:
      break;
  }
  // Reads have the second half for themselves.
  const std::uint64_t half = blocks_ / 2;
  if (drive.next_read <= drive.next_write)
    return read_block(slot, half + drive.next_read++ % (blocks_ - half));
  return write_block(slot, drive.next_write++ % half);
}

Status DriveTest::finish_timed(Slot& slot) {
  const std::int64_t now_ns = io::steady_now_ns();
  report_.latency.add(static_cast<std::uint64_t>(now_ns - slot.started_ns));
  const auto slice = static_cast<std::size_t>((now_ns - started_ns_) / slice_ns_);
  if (slice < kSlices) slice_bytes_[slice] += slot.bytes;
  return {};
}

Status DriveTest::finish_verify(Slot& slot) {
  const std::uint32_t generation = drives_[slot.drive].generations[slot.block];
  if (matches(buffer(slot), {slot.drive, slot.block, generation})) return {};
  return {Code::kDataLoss,
          fmt::format("{}: what was read back at offset {} ({} bytes) is not what was written",
                      options_.directories[slot.drive], slot.offset, slot.bytes)};
}

Status DriveTest::fill() {
  for (const Slot& slot : slots_) fill_with_noise(buffer(slot));
  return run(&DriveTest::choose_fill, &DriveTest::finish_nothing);
}

Status DriveTest::measure() {
  slice_ns_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(options_.seconds * kNsPerSecond / kSlices));
  const double cpu_before = cpu_seconds();
  started_ns_ = io::steady_now_ns();
  SLUICE_RETURN_IF_ERROR(run(&DriveTest::choose_timed, &DriveTest::finish_timed));
  const double elapsed = static_cast<double>(io::steady_now_ns() - started_ns_) / kNsPerSecond;
  const double cpu = cpu_seconds() - cpu_before;

  // The tail, in which the queue runs empty, counts only where nothing else was completed.
  const double all_gib = static_cast<double>(report_.latency.count() * options_.block_bytes) / 0x1p30;
  const double slice_seconds = static_cast<double>(slice_ns_) / kNsPerSecond;
  std::uint64_t bytes = 0;
  for (const std::uint64_t part : slice_bytes_) bytes += part;
  const auto rate = [](std::uint64_t count, double seconds) {
    return static_cast<double>(count) / 0x1p30 / seconds;
  };
  report_.gib_per_s = bytes > 0 ? rate(bytes, slice_seconds * kSlices) : all_gib / elapsed;
  report_.gib_per_s_min = rate(*std::min_element(slice_bytes_.begin(), slice_bytes_.end()), slice_seconds);
  report_.cpu_seconds_per_gib = cpu / all_gib;
  return {};
}

Status DriveTest::verify() {
  SLUICE_RETURN_IF_ERROR(run(&DriveTest::choose_verify, &DriveTest::finish_verify));
  report_.verified = true;
  return {};
}

}  // namespace

Result<DriveTestReport> test_drives(const DriveTestOptions& options,
                                    const std::function<void(std::string_view)>& progress) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  DriveTest test(options);
  SLUICE_RETURN_IF_ERROR(test.prepare());
  progress("writing " + size_text(options.size_bytes));
  SLUICE_RETURN_IF_ERROR(test.fill());
  progress(fmt::format("measuring for {} s", options.seconds));
  SLUICE_RETURN_IF_ERROR(test.measure());
  if (options.verify == Verify::kYes) {
    progress("reading all of it back and comparing");
    SLUICE_RETURN_IF_ERROR(test.verify());
  }
  return test.report();
}

Result<std::vector<TunePoint>> tune_drives(const DriveTestOptions& options,
                                           const std::function<void(std::string_view)>& progress) {
  std::vector<TunePoint> points;
  DriveTestOptions trial = options;
  trial.seconds = std::min(options.seconds, kTuneSeconds);
  trial.verify = Verify::kNo;
  for (const std::uint64_t block_bytes : {128 << 10, 512 << 10, 1 << 20, 4 << 20}) {
    for (const std::uint32_t depth : {2U, 8U, 16U, 32U}) {
      trial.block_bytes = block_bytes;
      trial.depth = depth;
      if (trial.size_bytes < least_size_bytes(trial)) continue;
      const auto report = test_drives(trial, [](std::string_view) {});
      if (!report.ok()) return report.status();
      points.push_back({block_bytes, depth, report->gib_per_s});
      progress(fmt::format("{} x {}: {:.2f} GiB/s", depth, size_text(block_bytes), report->gib_per_s));
    }
  }
  if (points.empty()) {
    return refuse("--size", size_text(options.size_bytes), "room for 2 blocks of 128 KiB on each drive");
  }
  std::stable_sort(points.begin(), points.end(),
                   [](const TunePoint& a, const TunePoint& b) { return a.gib_per_s > b.gib_per_s; });
  return points;
}

}  // namespace sluice::tools
