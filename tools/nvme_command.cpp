#include <iostream>

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/drive_test.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

struct NvmeOptions {
  DriveTestOptions test;
  std::string op = "read";
  std::string size = "1GiB";
  std::string block = "1MiB";
  std::string backend = "auto";
  bool verify = false;
  bool tune = false;
};

std::string microseconds(std::uint64_t ns) { return fmt::format("{:.0f} us", static_cast<double>(ns) / 1e3); }

std::string report_text(const NvmeOptions& options, const DriveTestReport& report) {
  Table table({options.op, ""});
  table.add({"throughput", fmt::format("{:.2f} GiB/s", report.gib_per_s)});
  table.add({"slowest tenth", fmt::format("{:.2f} GiB/s", report.gib_per_s_min)});
  table.add({"latency p50", microseconds(report.latency.quantile_ns(0.5))});
  table.add({"latency p99", microseconds(report.latency.quantile_ns(0.99))});
  table.add({"latency max", microseconds(report.latency.max_ns())});
  table.add({"CPU", fmt::format("{:.3f} s/GiB", report.cpu_seconds_per_gib)});
  std::string text =
      table.text() +
      fmt::format("{} x {} in flight on each of {} drive(s), backend {}, {}, buffers on {}{}\n",
                  options.test.depth, size_text(options.test.block_bytes), options.test.directories.size(),
                  report.backend, report.direct ? "O_DIRECT" : "buffered", report.buffer_pages,
                  report.verified ? ", every byte read back and compared" : "");
  for (const std::string& fallback : report.fallbacks) text += "note: " + fallback + '\n';
  return text;
}

Result<nlohmann::ordered_json> run(NvmeOptions& options) {
  DriveTestOptions& test = options.test;
  test.op = options.op == "read" ? DriveOp::kRead : options.op == "write" ? DriveOp::kWrite : DriveOp::kMixed;
  test.size_bytes = parse_size(options.size).value();
  test.block_bytes = parse_size(options.block).value();
  test.backend = io::parse_backend(options.backend).value();
  test.verify = options.verify ? Verify::kYes : Verify::kNo;
  const auto say = [](std::string_view what) { std::cerr << what << '\n'; };
  auto tuned = nlohmann::ordered_json::array();
  if (options.tune) {
    const auto points = tune_drives(test, say);
    if (!points.ok()) return points.status();
    for (const TunePoint& point : *points) {
      tuned.push_back(
          {{"block_bytes", point.block_bytes}, {"depth", point.depth}, {"gib_per_s", point.gib_per_s}});
    }
    test.block_bytes = points->front().block_bytes;
    test.depth = points->front().depth;
  }
  const auto result = test_drives(test, say);
  if (!result.ok()) return result.status();
  std::cerr << report_text(options, *result);

  const auto microseconds_of = [](std::uint64_t ns) { return static_cast<double>(ns) / 1e3; };
  const LatencyHistogram& latency = result->latency;
  return nlohmann::ordered_json{{"op", options.op},
                                {"gib_per_s", result->gib_per_s},
                                {"gib_per_s_min", result->gib_per_s_min},
                                {"latency_us",
                                 {{"p50", microseconds_of(latency.quantile_ns(0.5))},
                                  {"p99", microseconds_of(latency.quantile_ns(0.99))},
                                  {"max", microseconds_of(latency.max_ns())}}},
                                {"cpu_seconds_per_gib", result->cpu_seconds_per_gib},
                                {"requests", latency.count()},
                                {"size_bytes", test.size_bytes},
                                {"block_bytes", test.block_bytes},
                                {"depth", test.depth},
                                {"drives", test.directories.size()},
                                {"backend", result->backend},
                                {"direct", result->direct},
                                {"registered_buffers", result->registered_buffers},
                                {"buffer_pages", result->buffer_pages},
                                {"verified", result->verified},
                                {"tuned", tuned},
                                {"fallbacks", result->fallbacks}};
}

}  // namespace

void add_nvme_command(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<NvmeOptions>();
  options->test.depth = 16;
  options->test.seconds = 5;
  CLI::App* command =
      app.add_subcommand("nvme", "Measure drives with the library's own I/O on data it wrote");
  add_directories(*command, options->test.directories)->required();
  command->add_option("--op", options->op, "What to measure")
      ->check(CLI::IsMember({"read", "write", "mixed"}))
      ->capture_default_str();
  add_size(*command, "--size", options->size, "Bytes of all files together")->capture_default_str();
  add_size(*command, "--block", options->block, "Bytes of one request")->capture_default_str();
  command->add_option("--depth", options->test.depth, "Requests in flight on each drive, 1 to 4096")
      ->capture_default_str();
  command->add_option("--seconds", options->test.seconds, "How long to measure")->capture_default_str();
  add_backend(*command, options->backend);
  command->add_flag("--tune", options->tune, "Try blocks and depths first and measure with the best");
  command->add_flag("--verify", options->verify, "Read everything back afterwards and compare every byte");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace sluice::tools
