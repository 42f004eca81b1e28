#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "sluice/status.hpp"

namespace sluice::tools {

/// Reads "4096", "64KiB", "1.5GiB", "unlimited" (sluice::kUnlimited).
/// Errors: kInvalidArgument with the text and what is accepted.
Result<std::uint64_t> parse_size(std::string_view text);

/// Reads a size as above, or "0.25x": that part of `whole_bytes`, rounded down.
Result<std::uint64_t> parse_budget(std::string_view text, std::uint64_t whole_bytes);

/// Whether parse_budget() takes the text; CLI11's form of a check: empty when it does, else the reason.
std::string check_size(const std::string& text);
std::string check_budget(const std::string& text);

/// "1.50 GiB", "12.0 KiB", "17 bytes".
std::string size_text(std::uint64_t bytes);

}  // namespace sluice::tools
