#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/nvme/drive_tune.hpp"

namespace sluice::tools {

/// Saves what was chosen beside what is on each drive, for engines that are not told otherwise.
/// Errors: naming the directory.
Status keep_settings(const std::vector<DriveTuning>& drives);

/// Sets a test to measure what was chosen, all drives together.
void use_tuning(const std::vector<DriveTuning>& drives, DriveTestOptions& options);

std::string tune_text(const std::vector<DriveTuning>& drives);
nlohmann::ordered_json tune_json(const std::vector<DriveTuning>& drives);

}  // namespace sluice::tools
