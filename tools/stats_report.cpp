#include "tools/stats_report.hpp"

#include <fmt/format.h>

#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

std::string registered_text(const Stats& stats) {
  if (stats.registered_memory && stats.registered_files) return "memory and files registered";
  if (stats.registered_memory) return "memory registered";
  return stats.registered_files ? "files registered" : "nothing registered";
}

std::string rates_text(const DriveStats& drive) {
  if (drive.mixed_bytes_per_s <= 0) return "not measured";
  const auto gib_per_s = [](double bytes_per_s) { return bytes_per_s / 0x1p30; };
  return fmt::format("{:.2f} GiB/s read, {:.2f} written, {:.2f} mixed", gib_per_s(drive.read_bytes_per_s),
                     gib_per_s(drive.write_bytes_per_s), gib_per_s(drive.mixed_bytes_per_s));
}

}  // namespace

std::string use_text(const Stats& stats) {
  std::string text =
      fmt::format("{} chunks, {} resident; backend {}", stats.chunks, stats.resident_chunks, stats.backend);
  if (stats.backend == "uring") text += fmt::format(" ({}; {})", stats.ring, registered_text(stats));
  text += fmt::format(", {}, host memory on {}, NUMA: {}, {}, {} threads\n", stats.direct, stats.host_backing,
                      stats.numa, stats.isa, stats.threads);
  for (const DriveStats& drive : stats.drives) {
    text += fmt::format("{}: up to {} x {} ({}), {}\n", drive.directory, drive.depth,
                        size_text(drive.piece_bytes), drive.source, rates_text(drive));
  }
  for (const std::string& fallback : stats.fallbacks) text += "note: " + fallback + '\n';
  return text;
}

void add_use(nlohmann::ordered_json& json, const Stats& stats) {
  auto drives = nlohmann::ordered_json::array();
  for (const DriveStats& drive : stats.drives) {
    drives.push_back({{"directory", drive.directory},
                      {"piece_bytes", drive.piece_bytes},
                      {"depth", drive.depth},
                      {"source", drive.source},
                      {"read_bytes_per_s", drive.read_bytes_per_s},
                      {"write_bytes_per_s", drive.write_bytes_per_s},
                      {"mixed_bytes_per_s", drive.mixed_bytes_per_s},
                      {"note", drive.note}});
  }
  json.update({{"chunks", stats.chunks},
               {"resident_chunks", stats.resident_chunks},
               {"nvme_bytes", stats.nvme_reserved_bytes},
               {"backend", stats.backend},
               {"ring", stats.ring},
               {"registered_memory", stats.registered_memory},
               {"registered_files", stats.registered_files},
               {"drives", drives},
               {"direct", stats.direct},
               {"host_backing", stats.host_backing},
               {"device_backing", stats.device_backing},
               {"numa", stats.numa},
               {"isa", stats.isa},
               {"threads", stats.threads},
               {"fallbacks", stats.fallbacks}});
}

std::string early_text(const Stats& stats) {
  return fmt::format(
      "{} records updated during backward for good, {} once more by the step; {} wrong guesses\n",
      stats.early_updates, stats.redone_updates, stats.wrong_guesses);
}

void add_early(nlohmann::ordered_json& json, const Stats& stats) {
  json.update({{"early_updates", stats.early_updates},
               {"redone_updates", stats.redone_updates},
               {"wrong_guesses", stats.wrong_guesses}});
}

}  // namespace sluice::tools
