#pragma once

#include <string>
#include <vector>

namespace sluice::tools {

/// The first line of a file of /proc or /sys without the blanks around it; empty when it cannot be read.
std::string first_line(const std::string& path);

/// What follows `key` at the start of a line, "Seccomp:", blanks around it removed; empty when there is none.
std::string field_of(const std::string& path, const std::string& key);

/// The names in a folder, sorted; none when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// Of "always [madvise] never" the word in brackets; the whole text without brackets.
std::string chosen_of(const std::string& choices);

}  // namespace sluice::tools
