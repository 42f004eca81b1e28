#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::memory {

/// The whole text of a small file of /proc or /sys; nothing when it cannot be read.
std::optional<std::string> read_pseudo_file(const std::string& path);

/// The unsigned number at the start of `text`, blanks before it skipped; nothing when none is there or it is
/// too large.
std::optional<std::uint64_t> parse_number(std::string_view text);

/// The number that follows `key` at the start of a line: ("a 1\nb 2", "b") is 2, ("MemTotal:  3 kB",
/// "MemTotal:") is 3.
std::optional<std::uint64_t> number_of_line(std::string_view text, std::string_view key);

}  // namespace sluice::memory
