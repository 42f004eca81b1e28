#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::peers {

/// Returns: the path of the fio that PATH leads to; nothing where there is none.
std::optional<std::string> find_fio();

/// Reads what one job of fio 3 wrote with --output-format=json; text before the object is passed over.
/// Errors: kDataLoss when it is no such report; kIoError when it tells of a failed job.
Result<Moved> parse_fio(std::string_view report);

/// Runs `fio` on the file of `work`, which needs no name, with the engine "libaio" or "io_uring", the latter with
/// registered buffers and file. Its buffers are its own, on huge pages where its C library grants them.
/// Errors: kUnavailable when it cannot be started or ends otherwise than by exit(0), with its last words; kAborted
/// when it was stopped.
Result<Moved> run_fio(const std::string& fio, std::string_view engine, const Work& work);

}  // namespace sluice::peers
