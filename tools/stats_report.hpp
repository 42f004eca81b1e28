#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "sluice/stats.hpp"

namespace sluice::tools {

/// What an engine has in use, a line each: chunks, I/O, memory, instruction set, every drive, and what is not in use
/// with the reason.
std::string use_text(const Stats& stats);

/// The same as fields of a command's JSON, put at its end.
void add_use(nlohmann::ordered_json& json, const Stats& stats);

/// What came of updates during backward, in a line and as fields.
std::string early_text(const Stats& stats);
void add_early(nlohmann::ordered_json& json, const Stats& stats);

}  // namespace sluice::tools
