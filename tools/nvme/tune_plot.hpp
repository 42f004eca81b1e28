#pragma once

#include <string>
#include <vector>

#include "sluice/status.hpp"
#include "tools/nvme/drive_tune.hpp"

namespace sluice::tools {

/// A drawing of throughput over block size, a panel a drive: a line a depth through whole blocks, and a hollow square
/// for each block that was cut. Every point has its figures as a title.
/// Returns: an SVG document. Requires: at least one drive, each with a point.
std::string tune_svg(const std::vector<DriveTuning>& drives, const std::string& title);

/// Whether write_plot() is likely to succeed, before there is anything to draw. Errors: kInvalidArgument.
Status check_plot(const std::string& path);

/// Replaces `path`, whole or not at all. Errors: of writing the file.
Status write_plot(const std::string& path, const std::string& svg);

}  // namespace sluice::tools
