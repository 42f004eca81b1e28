#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace sluice::sim {

struct ShellAnswer {
  bool ok = false;   ///< it ended with 0
  std::string text;  ///< stdout and stderr
};

/// Runs a command line of the shell to its end.
inline ShellAnswer run_in_shell(const std::string& command) {
  ShellAnswer answer;
  FILE* output = ::popen((command + " 2>&1").c_str(), "r");
  if (output == nullptr) return answer;
  std::array<char, 4096> part;
  for (std::size_t bytes; (bytes = std::fread(part.data(), 1, part.size(), output)) > 0;) {
    answer.text.append(part.data(), bytes);
  }
  const int outcome = ::pclose(output);
  answer.ok = WIFEXITED(outcome) && WEXITSTATUS(outcome) == 0;
  return answer;
}

}  // namespace sluice::sim
