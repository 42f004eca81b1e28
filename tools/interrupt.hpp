#pragma once

#include <signal.h>

#include <array>

#include "sluice/status.hpp"

namespace sluice::tools {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP is noted instead of ending the process, so that a
/// command can remove what it made; the same one again ends it. A signal that is ignored stays ignored.
///
/// Threads: one at a time in a process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  /// Errors: kAborted naming the signal, once one has come.
  static Status check();
  /// The last one's signal; 0: none has come.
  static int signal();

 private:
  std::array<struct sigaction, 3> previous_{};
};

}  // namespace sluice::tools
