#include "tools/nvme/tune_table.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <set>

#include <fmt/format.h>

#include "tools/sizes.hpp"
#include "tools/table.hpp"

namespace sluice::tools {

std::string block_text(const TunePoint& point) {
  const std::string block = size_text(point.block_bytes);
  return point.settings.piece_bytes == point.block_bytes
             ? block
             : block + " in " + size_text(point.settings.piece_bytes);
}

std::string tune_table(const std::vector<TunePoint>& points) {
  std::set<std::uint32_t> depths;
  std::vector<std::string> blocks;
  for (const TunePoint& point : points) {
    depths.insert(point.settings.depth);
    if (const std::string block = block_text(point);
        std::find(blocks.begin(), blocks.end(), block) == blocks.end())
      blocks.push_back(block);
  }
  std::vector<std::string> header = {"GiB/s at depth"};
  for (const std::uint32_t depth : depths) header.push_back(std::to_string(depth));
  Table table(header);
  for (const std::string& block : blocks) {
    std::vector<std::string> cells = {block};
    for (const std::uint32_t depth : depths) {
      const auto found = std::find_if(points.begin(), points.end(), [&](const TunePoint& point) {
        return point.settings.depth == depth && block_text(point) == block;
      });
      cells.push_back(found == points.end() ? "" : fmt::format("{:.2f}", found->gib_per_s));
    }
    table.add(std::move(cells));
  }
  return table.text();
}

LiveTuneTable::LiveTuneTable() : on_terminal_(isatty(STDERR_FILENO) == 1) {}

void LiveTuneTable::show(const std::string& directory, const std::vector<TunePoint>& points) {
  if (!on_terminal_) {
    const TunePoint& last = points.back();
    std::cerr << fmt::format("{} x {}: {:.2f} GiB/s\n", block_text(last), last.settings.depth,
                             last.gib_per_s);
    return;
  }
  if (directory_ == directory && lines_ > 0) std::cerr << fmt::format("\x1b[{}A\x1b[J", lines_);
  directory_ = directory;
  const std::string text = tune_table(points);
  lines_ = static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  std::cerr << text << std::flush;
}

}  // namespace sluice::tools
