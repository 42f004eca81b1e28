#pragma once

#include <string>
#include <vector>

namespace sluice::tools {

enum class CheckStatus {
  kOk,
  kDegraded,  ///< works, slower or with less than it could
  kMissing,
};

/// One thing that Sluice likes to have.
/// Invariant: `remedy` is empty exactly when `status` is kOk.
struct Check {
  std::string name;
  CheckStatus status = CheckStatus::kOk;
  std::string detail;  ///< what was found
  std::string remedy;  ///< what would make it ok
};

/// The machine: io_uring, the lock limit, huge pages, control groups, CPUs, NUMA nodes, memory, instruction
/// sets.
std::vector<Check> check_machine();

/// The drives below the directories: direct I/O (really tried) and its grid, space, file system and device,
/// and whether each directory has a drive of its own.
std::vector<Check> check_drives(const std::vector<std::string>& directories);

/// The stores in the directories: what each is, who uses it and what a crash would cost. Changes nothing.
std::vector<Check> check_stores(const std::vector<std::string>& directories);

}  // namespace sluice::tools
