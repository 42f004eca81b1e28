#include <algorithm>

#include <fmt/format.h>

#include "tools/nvme/drive_compare.hpp"
#include "tools/nvme/nvme_report.hpp"
#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

/// What a mix reaches at the best of all settings that were tried.
struct BestSetting {
  peers::Mix mix = peers::Mix::kRead;
  double own_gib_per_s = 0;
  double other_gib_per_s = 0;
  std::string own_where;
  std::string other_where;
  double ratio() const { return other_gib_per_s > 0 ? own_gib_per_s / other_gib_per_s : 0; }
};

std::vector<BestSetting> best_settings(const CompareReport& report) {
  std::vector<BestSetting> all;
  for (const Comparison& comparison : report.comparisons) {
    auto found = std::find_if(all.begin(), all.end(),
                              [&](const BestSetting& one) { return one.mix == comparison.mix; });
    if (found == all.end()) {
      found = all.insert(all.end(), BestSetting());
      found->mix = comparison.mix;
    }
    const std::string where = fmt::format("{} x {}", size_text(comparison.block_bytes), comparison.depth);
    const Contender& own = comparison.contenders[0];
    const Contender& other = comparison.contenders[comparison.best];
    if (own.median_gib_per_s > found->own_gib_per_s) {
      found->own_gib_per_s = own.median_gib_per_s;
      found->own_where = where;
    }
    if (other.median_gib_per_s > found->other_gib_per_s) {
      found->other_gib_per_s = other.median_gib_per_s;
      found->other_where = where + " by " + other.name;
    }
  }
  return all;
}

std::vector<std::string> names(const CompareReport& report) {
  std::vector<std::string> all;
  for (const Comparison& comparison : report.comparisons) {
    for (const Contender& contender : comparison.contenders) {
      if (std::find(all.begin(), all.end(), contender.name) == all.end()) all.push_back(contender.name);
    }
  }
  return all;
}

}  // namespace

std::string compare_text(const CompareReport& report) {
  const std::vector<std::string> who = names(report);
  std::vector<std::string> header = {"GiB/s (CPU ms/GiB)"};
  header.insert(header.end(), who.begin(), who.end());
  header.insert(header.end(), {"best of others", "ratio", "in rounds", "CPU ratio", "to least"});
  Table table(header);
  for (const Comparison& comparison : report.comparisons) {
    std::vector<std::string> cells = {fmt::format("{} {} x {}", mix_name(comparison.mix),
                                                  size_text(comparison.block_bytes), comparison.depth)};
    for (const std::string& name : who) {
      const auto found = std::find_if(comparison.contenders.begin(), comparison.contenders.end(),
                                      [&](const Contender& contender) { return contender.name == name; });
      cells.push_back(
          found == comparison.contenders.end()
              ? "-"
              : fmt::format("{:.2f} ({:.1f})", found->median_gib_per_s, 1e3 * found->median_cpu_s_per_gib));
    }
    cells.insert(
        cells.end(),
        {comparison.contenders[comparison.best].name, fmt::format("{:.3f}", comparison.ratio),
         fmt::format("{:.2f}-{:.2f}", comparison.ratio_min, comparison.ratio_max),
         fmt::format("{:.3f}", comparison.cpu_ratio), fmt::format("{:.3f}", comparison.cpu_ratio_least)});
    table.add(std::move(cells));
  }
  std::string text = table.text();
  for (const BestSetting& best : best_settings(report)) {
    text += fmt::format("{} at the best settings: {:.2f} GiB/s ({}) against {:.2f} ({}): {:.3f}\n",
                        mix_name(best.mix), best.own_gib_per_s, best.own_where, best.other_gib_per_s,
                        best.other_where, best.ratio());
  }
  if (!report.comparisons.empty()) {
    for (const Contender& contender : report.comparisons.back().contenders)
      text += fmt::format("{}: {}\n", contender.name, contender.how);
  }
  text += fmt::format("{}, buffers on {}\n", report.use.direct ? "O_DIRECT" : "buffered",
                      report.use.buffer_pages);
  for (const std::string& note : report.notes) text += "note: " + note + '\n';
  for (const std::string& fallback : report.use.fallbacks) text += "note: " + fallback + '\n';
  return text;
}

nlohmann::ordered_json compare_json(const CompareOptions& options, const CompareReport& report) {
  auto comparisons = nlohmann::ordered_json::array();
  for (const Comparison& comparison : report.comparisons) {
    auto contenders = nlohmann::ordered_json::array();
    for (const Contender& contender : comparison.contenders) {
      contenders.push_back({{"name", contender.name},
                            {"how", contender.how},
                            {"gib_per_s", contender.median_gib_per_s},
                            {"cpu_seconds_per_gib", contender.median_cpu_s_per_gib},
                            {"rounds_gib_per_s", contender.gib_per_s},
                            {"rounds_cpu_seconds_per_gib", contender.cpu_s_per_gib}});
    }
    comparisons.push_back({{"op", mix_name(comparison.mix)},
                           {"block_bytes", comparison.block_bytes},
                           {"depth", comparison.depth},
                           {"contenders", contenders},
                           {"best", comparison.contenders[comparison.best].name},
                           {"ratio", comparison.ratio},
                           {"ratio_min", comparison.ratio_min},
                           {"ratio_max", comparison.ratio_max},
                           {"cpu_ratio", comparison.cpu_ratio},
                           {"cpu_ratio_least", comparison.cpu_ratio_least}});
  }
  auto best = nlohmann::ordered_json::array();
  for (const BestSetting& one : best_settings(report)) {
    best.push_back({{"op", mix_name(one.mix)},
                    {"gib_per_s", one.own_gib_per_s},
                    {"at", one.own_where},
                    {"best_of_others_gib_per_s", one.other_gib_per_s},
                    {"best_of_others_at", one.other_where},
                    {"ratio", one.ratio()}});
  }
  nlohmann::ordered_json json = {{"comparisons", comparisons},
                                 {"best_settings", best},
                                 {"rounds", options.rounds},
                                 {"pattern", pattern_name(options.test.pattern)},
                                 {"size_bytes", options.test.size_bytes},
                                 {"notes", report.notes}};
  add_use(json, report.use);
  return json;
}

}  // namespace sluice::tools
