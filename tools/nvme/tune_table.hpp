#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/nvme/drive_tune.hpp"

namespace sluice::tools {

/// "4.00 MiB", or "4.00 MiB in 256 KiB" for a block that is cut.
std::string block_text(const TunePoint& point);

/// A line a block and cut, a column a depth, GiB/s in between.
std::string tune_table(const std::vector<TunePoint>& points);

/// Shows points on stderr while they are tried: on a terminal as one table that grows where it stands, elsewhere as a
/// line a point.
class LiveTuneTable {
 public:
  LiveTuneTable();
  void show(const std::string& directory, const std::vector<TunePoint>& points);

 private:
  const bool on_terminal_;
  std::string directory_;
  std::size_t lines_ = 0;  // of the table above the cursor
};

}  // namespace sluice::tools
