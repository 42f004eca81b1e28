#pragma once

#include <functional>
#include <string>
#include <thread>

#include "sluice/status.hpp"

namespace sluice::memory {

/// Starts a thread of the library: every signal blocked, so that the host's handlers run on the host's own
/// threads. `name` is cut to the kernel's 15 characters.
/// Errors: kResourceExhausted when the system has no thread to give.
Result<std::thread> start_thread(const std::string& name, std::function<void()> body);

}  // namespace sluice::memory
