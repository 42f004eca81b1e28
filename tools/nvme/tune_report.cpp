#include "tools/nvme/tune_report.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "io/drive_profile.hpp"
#include "tools/nvme/tune_table.hpp"
#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

double gib(double bytes) { return bytes / 0x1p30; }

nlohmann::ordered_json to_json(const std::vector<TunePoint>& points) {
  auto json = nlohmann::ordered_json::array();
  for (const TunePoint& point : points) {
    json.push_back({{"block_bytes", point.block_bytes},
                    {"piece_bytes", point.settings.piece_bytes},
                    {"depth", point.settings.depth},
                    {"gib_per_s", point.gib_per_s}});
  }
  return json;
}

}  // namespace

Status keep_settings(const std::vector<DriveTuning>& drives) {
  for (const DriveTuning& drive : drives) {
    SLUICE_ASSIGN_OR_RETURN(const io::Directory directory,
                            io::Directory::open(drive.directory, io::Access::kReadWrite));
    const Status saved = io::save_profile(directory, {.settings = drive.chosen.settings,
                                                      .read_bytes_per_s = drive.read_bytes_per_s,
                                                      .write_bytes_per_s = drive.write_bytes_per_s,
                                                      .mixed_bytes_per_s = drive.mixed_bytes_per_s,
                                                      .measured_by = "tune",
                                                      .measured_on = io::today()});
    SLUICE_RETURN_IF_ERROR(saved.with_context("keeping the settings of " + drive.directory));
  }
  return {};
}

void use_tuning(const std::vector<DriveTuning>& drives, DriveTestOptions& options) {
  const auto smaller = [](const DriveTuning& a, const DriveTuning& b) {
    return a.chosen.block_bytes < b.chosen.block_bytes;
  };
  const auto [least, most] = std::minmax_element(drives.begin(), drives.end(), smaller);
  // A block that one drive needs may be more than fits in the size at the depth that another needs.
  for (const std::uint64_t block_bytes : {most->chosen.block_bytes, least->chosen.block_bytes}) {
    options.block_bytes = block_bytes;
    options.settings.clear();
    for (const DriveTuning& drive : drives) {
      io::DriveSettings settings = drive.chosen.settings;
      settings.piece_bytes =
          static_cast<std::uint32_t>(std::min<std::uint64_t>(settings.piece_bytes, block_bytes));
      options.settings.push_back(settings);
    }
    if (validate(options).ok()) return;
  }
}

std::string tune_text(const std::vector<DriveTuning>& drives) {
  std::string text;
  for (const DriveTuning& drive : drives) {
    Table table({"tried again by turns", "depth", "GiB/s"});
    for (const TunePoint& point : drive.finalists) {
      table.add(
          {block_text(point), std::to_string(point.settings.depth), fmt::format("{:.2f}", point.gib_per_s)});
    }
    text += table.text() +
            fmt::format(
                "{}: kept for engines in {}: {} of {} in flight; {:.2f} GiB/s read, {:.2f} written, {:.2f} "
                "mixed\n",
                drive.directory, io::kProfileName, drive.chosen.settings.depth,
                size_text(drive.chosen.settings.piece_bytes), gib(drive.read_bytes_per_s),
                gib(drive.write_bytes_per_s), gib(drive.mixed_bytes_per_s));
  }
  return text;
}

nlohmann::ordered_json tune_json(const std::vector<DriveTuning>& drives) {
  auto json = nlohmann::ordered_json::array();
  for (const DriveTuning& drive : drives) {
    json.push_back({{"directory", drive.directory},
                    {"block_bytes", drive.chosen.block_bytes},
                    {"piece_bytes", drive.chosen.settings.piece_bytes},
                    {"depth", drive.chosen.settings.depth},
                    {"read_gib_per_s", gib(drive.read_bytes_per_s)},
                    {"write_gib_per_s", gib(drive.write_bytes_per_s)},
                    {"mixed_gib_per_s", gib(drive.mixed_bytes_per_s)},
                    {"finalists", to_json(drive.finalists)},
                    {"points", to_json(drive.points)}});
  }
  return json;
}

}  // namespace sluice::tools
