#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace sluice::tools {

struct CommandResult {
  int exit_code = -1;  ///< or -signal
  std::string output;  ///< stdout
  std::string errors;  ///< stderr
  std::uint64_t peak_rss_bytes = 0;

  /// stdout as one JSON object; a failed expectation when it is not.
  nlohmann::json json() const;
};

/// Runs the sluice command to its end, or kills it after `life`. `on_errors` is called with the process and all of
/// stderr whenever some more has come.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::function<void(pid_t, const std::string&)>& on_errors = {},
                          std::optional<std::chrono::steady_clock::duration> life = {});

/// A directory on the drive of the build, gone with all it holds.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }
  /// Names of what is in it.
  std::vector<std::string> names() const;

 private:
  std::string path_;
};

}  // namespace sluice::tools
