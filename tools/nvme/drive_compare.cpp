#include "tools/nvme/drive_compare.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "peers/bare_aio.hpp"
#include "peers/bare_uring.hpp"
#include "peers/fio.hpp"
#include "tools/interrupt.hpp"
#include "tools/nvme/nvme_report.hpp"
#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

constexpr double kWarmUpSeconds = 0.1;
constexpr std::uint32_t kMostRounds = 1000;

bool interrupted() { return Interrupt::signal() != 0; }

using Runner = std::function<Result<peers::Moved>(const peers::Work&)>;
struct Entry {
  std::string name;
  Runner run;
};

/// Sluice's own I/O as the others are run.
Result<peers::Moved> run_own(TestBed& bed, const peers::Work& work, std::optional<std::uint32_t> batch) {
  const io::DriveSettings settings{.piece_bytes = static_cast<std::uint32_t>(work.block_bytes),
                                   .depth = work.depth};
  SLUICE_ASSIGN_OR_RETURN(const RunResult result, bed.run({.mix = work.mix,
                                                           .pattern = work.pattern,
                                                           .block_bytes = work.block_bytes,
                                                           .drives = {settings},
                                                           .batch = batch,
                                                           .seconds = work.seconds,
                                                           .bytes_max = work.bytes_max}));
  const TestBedUse use = bed.in_use();
  return peers::Moved{
      .bytes = result.counts.bytes_read + result.counts.bytes_written,
      .seconds = result.seconds,
      .cpu = result.cpu,
      .how = fmt::format("{}{}{}, {} buffers, {} file, {} completion(s) at a time", use.backend,
                         use.ring.empty() ? "" : " ", use.ring, use.registered_buffers ? "fixed" : "plain",
                         use.registered_files ? "fixed" : "plain", result.counts.batch)};
}

std::vector<Entry> entries(TestBed& bed, std::optional<std::uint32_t> batch) {
  std::vector<Entry> all = {
      {"sluice", [&bed, batch](const peers::Work& work) { return run_own(bed, work, batch); }},
      {"aio", peers::run_bare_aio},
      {"uring", peers::run_bare_uring}};
  if (const auto fio = peers::find_fio()) {
    for (const char* engine : {"libaio", "io_uring"}) {
      all.push_back({fmt::format("fio_{}", engine),
                     [fio, engine](const peers::Work& work) { return peers::run_fio(*fio, engine, work); }});
    }
  }
  return all;
}

DriveTestOptions point_options(const CompareOptions& options, const Comparison& point) {
  DriveTestOptions one = options.test;
  one.mix = point.mix;
  one.block_bytes = point.block_bytes;
  one.piece_bytes = 0;
  one.depth = point.depth;
  return one;
}

std::vector<Comparison> points_of(const CompareOptions& options) {
  std::vector<Comparison> points;
  for (const peers::Mix mix : options.mixes) {
    for (const std::uint64_t block_bytes : options.blocks_bytes) {
      for (const std::uint32_t depth : options.depths)
        points.push_back({.mix = mix, .block_bytes = block_bytes, .depth = depth, .contenders = {}});
    }
  }
  return points;
}

Status validate(const CompareOptions& options, const std::vector<Comparison>& points) {
  if (options.test.directories.size() != 1) {
    return refuse("--dir", fmt::format("given {} times", options.test.directories.size()),
                  "one with --compare: all sides use one file");
  }
  if (options.test.threads != 1)
    return refuse("--threads", std::to_string(options.test.threads),
                  "1 with --compare: a bare loop has one thread");
  if (options.test.verify == Verify::kYes) return refuse("--verify", "given", "without --compare");
  if (options.test.piece_bytes != 0)
    return refuse("--piece", size_text(options.test.piece_bytes), "the block with --compare");
  if (options.rounds < 1 || options.rounds > kMostRounds)
    return refuse("--rounds", std::to_string(options.rounds), "1 to 1000");
  for (const Comparison& point : points)
    SLUICE_RETURN_IF_ERROR(tools::validate(point_options(options, point)));
  return {};
}

Result<std::unique_ptr<TestBed>> make_bed(const CompareOptions& options,
                                          const std::vector<Comparison>& points) {
  TestBedOptions all = bed_options(point_options(options, points.front()));
  for (const Comparison& point : points) {
    const TestBedOptions one = bed_options(point_options(options, point));
    all.memory_bytes = std::max(all.memory_bytes, one.memory_bytes);
    all.depth_max = std::max(all.depth_max, one.depth_max);
    all.block_bytes = std::min(all.block_bytes, one.block_bytes);
  }
  return TestBed::create(all);
}

double at(const std::vector<double>& values, std::size_t i) { return i < values.size() ? values[i] : 0; }

/// One contender's turn; false: it takes no part any more.
Result<bool> take_turn(const Entry& entry, Contender& contender, const peers::Work& work, bool counted,
                       std::vector<std::string>& notes) {
  const auto moved = entry.run(work);
  SLUICE_RETURN_IF_ERROR(Interrupt::check());
  if (!moved.ok()) {
    if (entry.name == "sluice") return moved.status();
    notes.push_back(entry.name + ": " + moved.status().message());
    return false;
  }
  if (!counted) return true;
  const double gib = static_cast<double>(moved->bytes) / 0x1p30;
  contender.how = moved->how;
  contender.gib_per_s.push_back(gib / moved->seconds);
  contender.cpu_s_per_gib.push_back(moved->cpu.all() / gib);
  return true;
}

Status compare(const CompareOptions& options, TestBed& bed, std::vector<Entry>& all, Comparison& comparison,
               std::vector<std::string>& notes) {
  SLUICE_RETURN_IF_ERROR(bed.check_blocks(comparison.mix, comparison.block_bytes));
  peers::Work work{.fd = bed.file(0).fd(),
                   .file_bytes = bed.file_bytes(),
                   .block_bytes = comparison.block_bytes,
                   .depth = comparison.depth,
                   .mix = comparison.mix,
                   .pattern = options.test.pattern,
                   .memory = bed.memory(),
                   .stopped = interrupted};
  if (options.test.bytes) work.bytes_max = *options.test.bytes;
  const double seconds = options.test.seconds.value_or(1e6);
  for (const Entry& entry : all) comparison.contenders.emplace_back().name = entry.name;
  // Round 0 warms up and is not counted.
  for (std::uint32_t round = 0; round <= options.rounds; ++round) {
    work.seconds = round == 0 ? std::min(kWarmUpSeconds, seconds) : seconds;
    std::vector<std::size_t> gone;
    for (const std::size_t who : turn_order(round == 0 ? 0 : round - 1, all.size())) {
      SLUICE_ASSIGN_OR_RETURN(const bool stays,
                              take_turn(all[who], comparison.contenders[who], work, round > 0, notes));
      if (!stays) gone.push_back(who);
    }
    std::sort(gone.begin(), gone.end(), std::greater<>());
    for (const std::size_t who : gone) {
      all.erase(all.begin() + static_cast<std::ptrdiff_t>(who));
      comparison.contenders.erase(comparison.contenders.begin() + static_cast<std::ptrdiff_t>(who));
    }
    if (all.size() < 2) return {Code::kUnavailable, "nobody is left to compare with: " + notes.back()};
  }
  settle(comparison);
  return {};
}

}  // namespace

std::vector<std::size_t> turn_order(std::size_t round, std::size_t count) {
  std::vector<std::size_t> order(count);
  // From the two ends by turns, 0 1 4 2 3, and one further each round: neighbours are apart by another distance each.
  for (std::size_t place = 0; place < count; ++place) {
    const std::size_t from_end = place % 2 == 0 ? count - place / 2 : (place + 1) / 2;
    order[place] = (from_end + round) % count;
  }
  // Of an odd number half the distances are missing, which the way back has.
  if (round / count % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

void settle(Comparison& comparison) {
  for (Contender& contender : comparison.contenders) {
    contender.median_gib_per_s = median(contender.gib_per_s);
    contender.median_cpu_s_per_gib = median(contender.cpu_s_per_gib);
  }
  const auto& all = comparison.contenders;
  comparison.best = 1;
  double least_cpu = all[1].median_cpu_s_per_gib;
  for (std::size_t i = 2; i < all.size(); ++i) {
    if (all[i].median_gib_per_s > all[comparison.best].median_gib_per_s) comparison.best = i;
    least_cpu = std::min(least_cpu, all[i].median_cpu_s_per_gib);
  }
  const Contender& own = all[0];
  const Contender& best = all[comparison.best];
  const auto over = [](double a, double b) { return b > 0 ? a / b : 0; };
  comparison.ratio = over(own.median_gib_per_s, best.median_gib_per_s);
  comparison.cpu_ratio = over(own.median_cpu_s_per_gib, best.median_cpu_s_per_gib);
  comparison.cpu_ratio_least = over(own.median_cpu_s_per_gib, least_cpu);
  comparison.ratio_min = comparison.ratio_max = over(at(own.gib_per_s, 0), at(best.gib_per_s, 0));
  for (std::size_t i = 1; i < own.gib_per_s.size(); ++i) {
    const double ratio = over(own.gib_per_s[i], at(best.gib_per_s, i));
    comparison.ratio_min = std::min(comparison.ratio_min, ratio);
    comparison.ratio_max = std::max(comparison.ratio_max, ratio);
  }
}

Result<CompareReport> compare_drives(const CompareOptions& options, const Progress& progress) {
  CompareReport report;
  std::vector<Comparison> points = points_of(options);
  SLUICE_RETURN_IF_ERROR(validate(options, points));
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<TestBed> bed, make_bed(options, points));
  progress("writing " + size_text(bed->file_bytes()));
  SLUICE_RETURN_IF_ERROR(bed->fill());
  std::vector<Entry> all = entries(*bed, options.test.batch);
  if (all.size() < 5) report.notes.push_back("fio: not in PATH");
  for (Comparison& point : points) {
    SLUICE_RETURN_IF_ERROR(compare(options, *bed, all, point, report.notes));
    std::string line =
        fmt::format("{} {} x {}:", mix_name(point.mix), size_text(point.block_bytes), point.depth);
    for (const Contender& contender : point.contenders)
      line += fmt::format(" {} {:.2f}", contender.name, contender.median_gib_per_s);
    progress(fmt::format("{} GiB/s; {:.3f} of {}, CPU {:.3f}", line, point.ratio,
                         point.contenders[point.best].name, point.cpu_ratio));
    report.comparisons.push_back(std::move(point));
  }
  report.use = bed->in_use();
  return report;
}

}  // namespace sluice::tools
