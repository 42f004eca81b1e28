#pragma once

#include <string_view>

namespace sluice::memory {

/// Ends the process over a programmer's error, after printing `what` with its values to stderr.
[[noreturn]] void fail_check(std::string_view what);

}  // namespace sluice::memory
