#include "tools/nvme/test_bed.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include <fmt/format.h>

#include "memory/thread.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint32_t kBackendDepthMost = 4096;
constexpr std::uint32_t kWorkersMost = 256;
constexpr std::uint32_t kFillDepth = 8;
constexpr std::uint64_t kThreadMemoryGrid = 64 << 10;

std::uint32_t share(std::uint32_t whole, std::size_t part, std::size_t parts) {
  return static_cast<std::uint32_t>(whole / parts + (part < whole % parts ? 1 : 0));
}

Status stay_on(const std::vector<int>& cpus) {
  if (cpus.empty()) return {};
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(static_cast<std::size_t>(cpu), &set);
  // The kernel passes over CPUs that are not there, as long as one is.
  cpu_set_t granted;
  if (sched_setaffinity(0, sizeof set, &set) == 0 && sched_getaffinity(0, sizeof granted, &granted) == 0 &&
      CPU_EQUAL(&set, &granted)) {
    return {};
  }
  return {Code::kInvalidArgument,
          fmt::format("--cpus is {}; accepted: CPUs that this process may run on", fmt::join(cpus, ","))};
}

}  // namespace

Result<std::unique_ptr<TestBed>> TestBed::create(const TestBedOptions& options) {
  std::unique_ptr<TestBed> bed(new TestBed(options));
  SLUICE_RETURN_IF_ERROR(bed->make_files());
  SLUICE_RETURN_IF_ERROR(bed->open_submitters());
  return bed;
}

Status TestBed::make_files() {
  file_bytes_ =
      options_.size_bytes / options_.directories.size() / options_.block_bytes * options_.block_bytes;
  use_.direct = true;
  for (const std::string& path : options_.directories) {
    SLUICE_ASSIGN_OR_RETURN(const io::Directory directory, io::Directory::open(path, io::Access::kReadWrite));
    // Without a name: the kernel removes the data with the last descriptor, however this process ends.
    SLUICE_ASSIGN_OR_RETURN(io::File file, io::File::open_unnamed(directory));
    SLUICE_RETURN_IF_ERROR(file.preallocate(file_bytes_));
    if (options_.block_bytes % file.grid().offset_bytes != 0) {
      return {Code::kInvalidArgument,
              fmt::format("--block is {}; accepted: multiples of {} on {}", size_text(options_.block_bytes),
                          size_text(file.grid().offset_bytes), path)};
    }
    if (!file.direct()) {
      use_.direct = false;
      use_.fallbacks.push_back(fmt::format("{}: buffered: {}", path, file.fallback_reason()));
    }
    files_.push_back(std::move(file));
  }
  if (options_.verify == Verify::kNo) return {};
  const std::uint64_t blocks = file_bytes_ / options_.block_bytes;
  contents_.resize(files_.size());
  for (DriveBlocks& drive : contents_) {
    drive.generations.resize(blocks);
    drive.in_flight.resize(blocks);
  }
  return {};
}

Status TestBed::open_submitters() {
  const std::uint64_t memory_bytes =
      (options_.memory_bytes + kThreadMemoryGrid - 1) / kThreadMemoryGrid * kThreadMemoryGrid;
  SLUICE_ASSIGN_OR_RETURN(arena_, memory::Arena::create({.bytes = options_.threads * memory_bytes,
                                                         .purpose = "buffers of the drive test",
                                                         .prefault_threads = 2}));
  use_.buffer_pages = arena_.backing();
  const std::uint64_t depth = std::uint64_t{share(options_.depth_max, 0, options_.threads)} * files_.size();
  for (std::uint32_t thread = 0; thread < options_.threads; ++thread) {
    SLUICE_ASSIGN_OR_RETURN(
        io::SelectedBackend selected,
        io::open_backend(
            {.kind = options_.backend,
             .queue_depth = static_cast<std::uint32_t>(std::min<std::uint64_t>(depth, kBackendDepthMost)),
             .threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(depth, kWorkersMost)),
             .cpus = options_.cpus}));
    if (thread == 0) use_.backend = io::backend_name(selected.kind);
    if (!selected.fallback_reason.empty()) note(selected.fallback_reason);
    const std::span<std::byte> memory = arena_.span().subspan(thread * memory_bytes, memory_bytes);
    submitters_.push_back(std::make_unique<Submitter>(std::move(selected.backend), memory, thread));
    if (options_.registration == Registration::kYes) register_all(*submitters_.back(), memory);
  }
  return {};
}

void TestBed::register_all(Submitter& submitter, std::span<std::byte> memory) {
  const auto keep = [&](const Status& status) {
    // A backend that keeps notes has it among them.
    const bool noted = !submitter.backend().in_use().notes.empty();
    if (!status.ok() && status.code() != Code::kUnimplemented && !noted) note(status.message());
  };
  const std::array regions = {memory};
  keep(submitter.backend().register_memory(regions));
  std::vector<int> fds;
  for (const io::File& file : files_) fds.push_back(file.fd());
  keep(submitter.backend().register_files(fds));
}

void TestBed::note(const std::string& text) {
  if (std::find(use_.fallbacks.begin(), use_.fallbacks.end(), text) == use_.fallbacks.end())
    use_.fallbacks.push_back(text);
}

TestBedUse TestBed::in_use() {
  use_.ring = submitters_.front()->backend().in_use().ring;
  use_.registered_buffers = use_.registered_files = true;
  for (const std::unique_ptr<Submitter>& submitter : submitters_) {
    const io::BackendUse backend = submitter->backend().in_use();
    use_.registered_buffers = use_.registered_buffers && backend.registered_memory;
    use_.registered_files = use_.registered_files && backend.registered_files;
    for (const std::string& text : backend.notes) note(text);
  }
  return use_;
}

std::vector<RunPart> TestBed::parts(const DriveRun& run, RunPart::Kind kind) {
  const std::uint64_t blocks = file_bytes_ / run.block_bytes;
  const std::size_t count = submitters_.size();
  const std::uint64_t blocks_max =
      run.bytes_max / run.block_bytes + (run.bytes_max % run.block_bytes != 0 ? 1 : 0);
  std::vector<RunPart> parts(count);
  for (std::size_t thread = 0; thread < count; ++thread) {
    RunPart& part = parts[thread];
    part.kind = kind;
    part.run = &run;
    part.blocks_max = blocks_max / count + (thread < blocks_max % count ? 1 : 0);
    const std::uint64_t first = blocks * thread / count;
    for (std::size_t drive = 0; drive < files_.size(); ++drive) {
      part.settings.push_back({.piece_bytes = run.drives[drive].piece_bytes,
                               .depth = share(run.drives[drive].depth, thread, count)});
      part.drives.push_back({.file = &files_[drive],
                             .first_block = first,
                             .blocks = blocks * (thread + 1) / count - first,
                             .contents = contents_.empty() ? nullptr : &contents_[drive]});
    }
  }
  return parts;
}

Status TestBed::run_threads(const std::vector<RunPart>& parts) {
  if (parts.size() == 1 && options_.cpus.empty()) return submitters_.front()->run(parts.front());
  std::vector<Status> statuses(parts.size());
  std::vector<std::thread> threads;
  Status started;
  for (std::size_t i = 0; i < parts.size() && started.ok(); ++i) {
    auto thread = memory::start_thread(fmt::format("sluice-nvme-{}", i), [&, i] {
      statuses[i] = stay_on(options_.cpus);
      if (statuses[i].ok()) statuses[i] = submitters_[i]->adopt();
      if (statuses[i].ok()) statuses[i] = submitters_[i]->run(parts[i]);
      if (!statuses[i].ok()) parts[i].failed->store(true);
    });
    if (thread.ok()) {
      threads.push_back(std::move(*thread));
    } else {
      started = thread.status();
      parts[i].failed->store(true);
    }
  }
  for (std::thread& thread : threads) thread.join();
  SLUICE_RETURN_IF_ERROR(started);
  for (const Status& status : statuses) SLUICE_RETURN_IF_ERROR(status);
  return {};
}

Result<RunResult> TestBed::run_parts(std::vector<RunPart>& parts) {
  std::atomic<bool> failed = false;
  const peers::CpuSeconds cpu_before = peers::process_cpu();
  const std::int64_t start_ns = io::steady_now_ns();
  const double seconds = parts.front().run->seconds;
  for (RunPart& part : parts) {
    part.failed = &failed;
    part.start_ns = start_ns;
    part.end_ns =
        std::isfinite(seconds) ? start_ns + static_cast<std::int64_t>(seconds * 1e9) : io::kNoDeadline;
  }
  SLUICE_RETURN_IF_ERROR(run_threads(parts));
  RunResult result;
  result.seconds = static_cast<double>(io::steady_now_ns() - start_ns) * 1e-9;
  result.cpu = peers::process_cpu() - cpu_before;
  for (const auto& submitter : submitters_) {
    const RunCounts& counts = submitter->counts();
    result.counts.bytes_read += counts.bytes_read;
    result.counts.bytes_written += counts.bytes_written;
    result.counts.blocks += counts.blocks;
    result.counts.batch = std::max(result.counts.batch, counts.batch);
    result.counts.latency.merge(counts.latency);
    result.counts.timeline.merge(counts.timeline);
  }
  bytes_written_ += result.counts.bytes_written;
  return result;
}

Status TestBed::check_blocks(peers::Mix mix, std::uint64_t block_bytes) const {
  // Each thread has blocks of its own, reads and writes that are mixed have halves of them.
  const std::uint64_t least = submitters_.size() * (mix == peers::Mix::kMixed ? 2 : 1);
  if (file_bytes_ / block_bytes >= least) return {};
  return {Code::kInvalidArgument, fmt::format("--size leaves {} a drive, which is not {} blocks of {}",
                                              size_text(file_bytes_), least, size_text(block_bytes))};
}

Result<RunResult> TestBed::run(const DriveRun& run) {
  SLUICE_RETURN_IF_ERROR(check_blocks(run.mix, run.block_bytes));
  std::vector<RunPart> all = parts(run, RunPart::Kind::kMeasure);
  return run_parts(all);
}

DriveRun TestBed::whole_pass() const {
  const std::uint64_t room = options_.memory_bytes / options_.block_bytes / files_.size();
  const auto depth = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      std::min<std::uint64_t>(room, options_.depth_max / options_.threads), 1, kFillDepth));
  const io::DriveSettings settings{.piece_bytes = static_cast<std::uint32_t>(
                                       std::min<std::uint64_t>(options_.block_bytes, io::kMaxRequestBytes)),
                                   .depth = depth * options_.threads};
  return {.block_bytes = options_.block_bytes, .drives = {files_.size(), settings}};
}

Status TestBed::fill() {
  const DriveRun run = whole_pass();
  std::vector<RunPart> all = parts(run, RunPart::Kind::kFill);
  return run_parts(all).status();
}

Status TestBed::check() {
  const DriveRun run = whole_pass();
  std::vector<RunPart> all = parts(run, RunPart::Kind::kCheck);
  return run_parts(all).status();
}

}  // namespace sluice::tools
