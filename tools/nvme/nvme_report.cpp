#include "tools/nvme/nvme_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

constexpr double kBarMost = 40;

double microseconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e3; }

std::string duration_text(std::uint64_t ns) {
  if (ns < 10'000'000) return fmt::format("{:.0f} us", microseconds(ns));
  return ns < 10'000'000'000 ? fmt::format("{:.0f} ms", static_cast<double>(ns) / 1e6)
                             : fmt::format("{:.0f} s", static_cast<double>(ns) / 1e9);
}

// A line an octave, its bar as long as its share.
std::string histogram_text(const LatencyHistogram& latency) {
  std::string text;
  std::uint64_t most = 1;
  for (const LatencyBucket& bucket : latency.octaves()) most = std::max(most, bucket.count);
  for (const LatencyBucket& bucket : latency.octaves()) {
    const double share = static_cast<double>(bucket.count) / static_cast<double>(latency.count());
    const double bar = std::ceil(kBarMost * static_cast<double>(bucket.count) / static_cast<double>(most));
    text += fmt::format("{:>9} to {:>9}  {:6.2f} %  {}\n", duration_text(bucket.from_ns),
                        duration_text(bucket.below_ns), 100 * share,
                        std::string(static_cast<std::size_t>(bar), '#'));
  }
  return text;
}

}  // namespace

std::string_view mix_name(peers::Mix mix) {
  return mix == peers::Mix::kRead ? "read" : mix == peers::Mix::kWrite ? "write" : "mixed";
}

std::string_view pattern_name(peers::Pattern pattern) {
  return pattern == peers::Pattern::kSequential ? "sequential" : "random";
}

std::string report_text(const DriveTestOptions& options, const DriveTestReport& report) {
  const Throughput& speed = report.throughput;
  const auto rate = [](double gib_per_s) { return fmt::format("{:.2f} GiB/s", gib_per_s); };
  Table table({std::string(mix_name(options.mix)), ""});
  table.add({"throughput", rate(speed.mean)});
  table.add({"sustained", rate(speed.sustained)});
  table.add({"peak second", rate(speed.peak_second)});
  table.add({"slowest tenth", rate(speed.slowest_tenth)});
  table.add({"latency p50", duration_text(report.latency.quantile_ns(0.5))});
  table.add({"latency p99", duration_text(report.latency.quantile_ns(0.99))});
  table.add({"latency p99.9", duration_text(report.latency.quantile_ns(0.999))});
  table.add({"latency max", duration_text(report.latency.max_ns())});
  table.add({"CPU, user", fmt::format("{:.4f} s/GiB", report.cpu_a_gib.user)});
  table.add({"CPU, system", fmt::format("{:.4f} s/GiB", report.cpu_a_gib.system)});
  table.add({"written by the test", size_text(report.test_bytes_written)});
  if (report.drive_bytes_written)
    table.add({"written by the drives, for all", size_text(*report.drive_bytes_written)});
  std::string text = table.text() + histogram_text(report.latency);
  if (speed.per_second.size() > 1) {
    text += "GiB/s in each second:";
    for (const double second : speed.per_second) text += fmt::format(" {:.2f}", second);
    text += '\n';
  }
  const TestBedUse& use = report.use;
  text += fmt::format("{}, blocks of {}, {} thread(s), {} completion(s) at a time\n",
                      pattern_name(options.pattern), size_text(options.block_bytes), options.threads,
                      report.batch);
  for (std::size_t drive = 0; drive < options.directories.size(); ++drive) {
    const io::DriveSettings settings = settings_of(options)[drive];
    text += fmt::format("{}: {} of {} in flight\n", options.directories[drive], settings.depth,
                        size_text(settings.piece_bytes));
  }
  text += fmt::format("backend {}{}, {}, buffers on {}{}, files {}{}\n", use.backend,
                      use.ring.empty() ? "" : " (" + use.ring + ")", use.direct ? "O_DIRECT" : "buffered",
                      use.buffer_pages, use.registered_buffers ? ", registered" : "",
                      use.registered_files ? "registered" : "not registered",
                      report.verified ? ", every byte read back and compared" : "");
  for (const std::string& fallback : use.fallbacks) text += "note: " + fallback + '\n';
  return text;
}

void add_use(nlohmann::ordered_json& json, const TestBedUse& use) {
  json["backend"] = use.backend;
  json["ring"] = use.ring;
  json["direct"] = use.direct;
  json["registered_buffers"] = use.registered_buffers;
  json["registered_files"] = use.registered_files;
  json["buffer_pages"] = use.buffer_pages;
  json["fallbacks"] = use.fallbacks;
}

nlohmann::ordered_json report_json(const DriveTestOptions& options, const DriveTestReport& report) {
  const LatencyHistogram& latency = report.latency;
  const Throughput& speed = report.throughput;
  const io::DriveSettings first = settings_of(options).front();
  auto histogram = nlohmann::ordered_json::array();
  for (const LatencyBucket& bucket : latency.octaves()) {
    histogram.push_back({{"from_us", microseconds(bucket.from_ns)},
                         {"below_us", microseconds(bucket.below_ns)},
                         {"count", bucket.count}});
  }
  nlohmann::ordered_json json = {{"op", mix_name(options.mix)},
                                 {"pattern", pattern_name(options.pattern)},
                                 {"gib_per_s", speed.mean},
                                 {"gib_per_s_min", speed.slowest_tenth},
                                 {"gib_per_s_peak", speed.peak_second},
                                 {"gib_per_s_sustained", speed.sustained},
                                 {"gib_per_s_each_second", speed.per_second},
                                 {"latency_us",
                                  {{"p50", microseconds(latency.quantile_ns(0.5))},
                                   {"p99", microseconds(latency.quantile_ns(0.99))},
                                   {"p99_9", microseconds(latency.quantile_ns(0.999))},
                                   {"max", microseconds(latency.max_ns())}}},
                                 {"latency_histogram", histogram},
                                 {"cpu_seconds_per_gib", report.cpu_a_gib.all()},
                                 {"cpu_user_seconds_per_gib", report.cpu_a_gib.user},
                                 {"cpu_system_seconds_per_gib", report.cpu_a_gib.system},
                                 {"seconds", report.seconds},
                                 {"requests", latency.count()},
                                 {"bytes_read", report.bytes_read},
                                 {"bytes_written", report.test_bytes_written},
                                 {"measured_bytes_written", report.bytes_written},
                                 {"drive_bytes_written", nullptr},
                                 {"size_bytes", options.size_bytes},
                                 {"block_bytes", options.block_bytes},
                                 {"piece_bytes", first.piece_bytes},
                                 {"depth", first.depth},
                                 {"batch", report.batch},
                                 {"threads", options.threads},
                                 {"drives", options.directories.size()},
                                 {"verified", report.verified}};
  if (report.drive_bytes_written) json["drive_bytes_written"] = *report.drive_bytes_written;
  add_use(json, report.use);
  return json;
}

}  // namespace sluice::tools
