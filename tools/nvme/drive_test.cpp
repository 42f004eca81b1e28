#include "tools/nvme/drive_test.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "sluice/options.hpp"
#include "tools/block_device.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kGridBytes = 4096;
// A piece is a number of 32 bits.
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 30;
constexpr std::uint32_t kMostDepth = 4096;
constexpr double kMostSeconds = 86400;

// A thread's, of all drives or of the one with most; the first thread has the greatest share of the depth.
struct Blocks {
  std::uint64_t all = 0;
  std::uint64_t most = 0;
};

Blocks blocks_of_a_thread(const DriveTestOptions& options) {
  Blocks blocks;
  for (io::DriveSettings settings : settings_of(options)) {
    settings.depth = (settings.depth + options.threads - 1) / options.threads;
    const std::uint64_t count = blocks_in_flight(settings, options.block_bytes);
    blocks.all += count;
    blocks.most = std::max(blocks.most, count);
  }
  return blocks;
}

// Every block in flight is another one; reads and writes that are mixed have halves of them.
std::uint64_t least_size_bytes(const DriveTestOptions& options) {
  const std::uint64_t halves = options.mix == peers::Mix::kMixed ? 2 : 1;
  return options.directories.size() * options.threads * blocks_of_a_thread(options).most *
         options.block_bytes * halves;
}

Status validate_bound(const DriveTestOptions& options) {
  if (options.seconds && !(*options.seconds > 0 && *options.seconds <= kMostSeconds))
    return refuse("--seconds", fmt::format("{}", *options.seconds), "more than 0, at most 86400");
  if (options.bytes && (*options.bytes == 0 || *options.bytes == kUnlimited))
    return refuse("--bytes", size_text(*options.bytes), "more than 0, not unlimited");
  if (!options.seconds && !options.bytes) return refuse("--seconds", "missing", "a time, or --bytes");
  return {};
}

// What the drives have written since they were attached, each of them once; nothing where one does not tell.
std::optional<std::uint64_t> drives_bytes_written(const std::vector<std::string>& directories) {
  std::vector<std::string> counted;
  std::uint64_t bytes = 0;
  for (const std::string& directory : directories) {
    const std::optional<memory::BlockDevice> device = memory::find_drive(directory).device;
    const std::optional<std::uint64_t> written = device ? bytes_written(*device) : std::nullopt;
    if (!written) return std::nullopt;
    if (std::find(counted.begin(), counted.end(), device->number) != counted.end()) continue;
    counted.push_back(device->number);
    bytes += *written;
  }
  return bytes;
}

}  // namespace

Status refuse(std::string_view option, std::string_view value, std::string_view accepted) {
  return {Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", option, value, accepted)};
}

std::vector<io::DriveSettings> settings_of(const DriveTestOptions& options) {
  if (!options.settings.empty()) return options.settings;
  const std::uint64_t piece_bytes = options.piece_bytes == 0 ? options.block_bytes : options.piece_bytes;
  const io::DriveSettings all{.piece_bytes = static_cast<std::uint32_t>(piece_bytes), .depth = options.depth};
  return {options.directories.size(), all};
}

Status validate(const DriveTestOptions& options) {
  if (options.directories.empty()) return refuse("--dir", "missing", "a directory a drive");
  if (options.block_bytes < kGridBytes || options.block_bytes > kMostBlockBytes ||
      options.block_bytes % kGridBytes != 0) {
    return refuse("--block", size_text(options.block_bytes), "a multiple of 4 KiB from 4 KiB to 1 GiB");
  }
  if (options.piece_bytes > options.block_bytes) {
    return refuse("--piece", size_text(options.piece_bytes),
                  fmt::format("a multiple of 4 KiB, at most --block, {}", size_text(options.block_bytes)));
  }
  for (const io::DriveSettings& settings : settings_of(options)) {
    if (settings.piece_bytes == 0 || settings.piece_bytes > options.block_bytes ||
        settings.piece_bytes % kGridBytes != 0) {
      return refuse("--piece", size_text(settings.piece_bytes),
                    fmt::format("a multiple of 4 KiB, at most --block, {}", size_text(options.block_bytes)));
    }
    if (settings.depth < 1 || settings.depth > kMostDepth)
      return refuse("--depth", std::to_string(settings.depth), "1 to 4096");
    if (options.threads < 1 || options.threads > settings.depth) {
      return refuse("--threads", std::to_string(options.threads),
                    fmt::format("1 to --depth, {}: each has a part of it", settings.depth));
    }
    if (options.batch && (*options.batch < 1 || *options.batch > settings.depth / options.threads)) {
      return refuse("--batch", std::to_string(*options.batch),
                    fmt::format("1 to a thread's part of --depth, {}", settings.depth / options.threads));
    }
  }
  for (const int cpu : options.cpus) {
    if (cpu < 0 || cpu >= CPU_SETSIZE)
      return refuse("--cpus", std::to_string(cpu), "numbers of CPUs, 0 to 1023");
  }
  if (options.size_bytes < options.block_bytes) {
    return refuse("--size", size_text(options.size_bytes),
                  fmt::format("at least --block, {}", size_text(options.block_bytes)));
  }
  const std::uint64_t least = least_size_bytes(options);
  if (options.size_bytes < least || options.size_bytes == kUnlimited) {
    return refuse("--size", size_text(options.size_bytes),
                  fmt::format("at least {} (every block in flight{}) and room on the drive", size_text(least),
                              options.mix == peers::Mix::kMixed ? " x 2" : ""));
  }
  return validate_bound(options);
}

TestBedOptions bed_options(const DriveTestOptions& options) {
  std::uint32_t depth_max = 0;
  for (const io::DriveSettings& settings : settings_of(options))
    depth_max = std::max(depth_max, settings.depth);
  return {.directories = options.directories,
          .size_bytes = options.size_bytes,
          .block_bytes = options.block_bytes,
          .depth_max = depth_max,
          .memory_bytes = blocks_of_a_thread(options).all * options.block_bytes,
          .threads = options.threads,
          .cpus = options.cpus,
          .backend = options.backend,
          .registration = options.registration,
          .verify = options.verify};
}

Result<DriveTestReport> measure(TestBed& bed, const DriveRun& run) {
  SLUICE_ASSIGN_OR_RETURN(const RunResult result, bed.run(run));
  DriveTestReport report;
  report.seconds = result.seconds;
  report.latency = result.counts.latency;
  report.batch = result.counts.batch;
  report.bytes_read = result.counts.bytes_read;
  report.bytes_written = result.counts.bytes_written;
  const double gib = static_cast<double>(report.bytes_read + report.bytes_written) / 0x1p30;
  report.cpu_a_gib = {.user = result.cpu.user / gib, .system = result.cpu.system / gib};
  // What runs empty after the time is over counts only where nothing was finished before.
  const double window = std::min(run.seconds, result.seconds);
  const bool in_time = result.counts.timeline.bytes_between(0, window * 1e9) > 0;
  report.throughput = throughput_of(result.counts.timeline, in_time ? window : result.seconds);
  return report;
}

Result<DriveTestReport> test_drives(const DriveTestOptions& options, const Progress& progress) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  const auto written_before = drives_bytes_written(options.directories);
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TestBed> bed, TestBed::create(bed_options(options)));
  progress("writing " + size_text(bed->file_bytes() * options.directories.size()));
  SLUICE_RETURN_IF_ERROR(bed->fill());

  DriveRun run{.mix = options.mix,
               .pattern = options.pattern,
               .block_bytes = options.block_bytes,
               .drives = settings_of(options),
               .batch = options.batch};
  if (options.seconds) run.seconds = *options.seconds;
  if (options.bytes) run.bytes_max = *options.bytes;
  progress(std::string("measuring") + (options.seconds ? fmt::format(" for {} s", *options.seconds) : "") +
           (options.bytes ? " over " + size_text(*options.bytes) : ""));
  SLUICE_ASSIGN_OR_RETURN(DriveTestReport report, measure(*bed, run));
  if (options.verify == Verify::kYes) {
    progress("reading all of it back and comparing");
    SLUICE_RETURN_IF_ERROR(bed->check());
    report.verified = true;
  }
  report.use = bed->in_use();
  report.test_bytes_written = bed->bytes_written();
  if (const auto written_after = drives_bytes_written(options.directories); written_before && written_after)
    report.drive_bytes_written = *written_after - *written_before;
  return report;
}

}  // namespace sluice::tools
