#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "trainer/trainer.hpp"

namespace sluice::tools {

/// Where training starts, a line each, with what differs from the store; empty at the beginning of a fresh run.
std::string start_text(const trainer::TrainOptions& options, const trainer::StartReport& start);

/// What was moved, where the time went, what memory was used, and what was learnt.
std::string report_text(const trainer::TrainOptions& options, const trainer::TrainReport& report);

/// The command's contract.
nlohmann::ordered_json to_json(const trainer::TrainOptions& options, const trainer::TrainReport& report);

}  // namespace sluice::tools
