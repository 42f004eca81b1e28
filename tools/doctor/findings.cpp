#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "tools/doctor/checks.hpp"

namespace sluice::tools {

Check Findings::check(std::string name) const {
  return {std::move(name), remedies_.empty() ? CheckStatus::kOk : CheckStatus::kDegraded,
          fmt::format("{}", fmt::join(details_, "; ")), fmt::format("{}", fmt::join(remedies_, "; "))};
}

}  // namespace sluice::tools
