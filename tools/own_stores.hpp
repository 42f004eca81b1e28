#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sluice/status.hpp"

namespace sluice::tools {

/// The stores in these directories. While an engine of this process lives there they are its own alone: no other may
/// make one beside it.
Result<std::vector<std::uint64_t>> list_stores(const std::vector<std::string>& directories);

/// Removes the stores of these ids with their commits, once no engine has them open.
/// Errors: kFailedPrecondition naming the process of one that has.
Status remove_stores(const std::vector<std::string>& directories, const std::vector<std::uint64_t>& ids);

}  // namespace sluice::tools
