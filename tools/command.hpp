#pragma once

#include <functional>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "sluice/status.hpp"

namespace sluice::tools {

/// The work of one sub-command. It writes what people read to stderr and returns the one JSON object of its
/// contract; one whose "ok" is false is printed and ends in failed work.
/// Errors: kInvalidArgument is bad usage (exit 2); kAborted after Interrupt noted a signal is an interrupted command
/// (exit 128 and the signal's number); every other code, and an exception, failed work (exit 1).
using Command = std::function<Result<nlohmann::ordered_json>()>;

/// Each adds its sub-command to `app`, and sets `chosen` when it is the one that was called.
/// Lifetime: `chosen` outlives parsing.
void add_doctor_command(CLI::App& app, Command& chosen);
void add_nvme_command(CLI::App& app, Command& chosen);
void add_bench_command(CLI::App& app, Command& chosen);
void add_train_command(CLI::App& app, Command& chosen);
void add_inspect_command(CLI::App& app, Command& chosen);
void add_verify_command(CLI::App& app, Command& chosen);
void add_export_command(CLI::App& app, Command& chosen);
void add_import_command(CLI::App& app, Command& chosen);

}  // namespace sluice::tools
