#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "tools/nvme/drive_test.hpp"

namespace sluice::tools {

/// "read", "write", "mixed".
std::string_view mix_name(peers::Mix mix);
/// "sequential", "random".
std::string_view pattern_name(peers::Pattern pattern);

/// A table, the latencies as a picture, and what was in use; for people.
std::string report_text(const DriveTestOptions& options, const DriveTestReport& report);

/// The fields of the command's contract.
nlohmann::ordered_json report_json(const DriveTestOptions& options, const DriveTestReport& report);

/// The fields that say what was in use.
void add_use(nlohmann::ordered_json& json, const TestBedUse& use);

}  // namespace sluice::tools
