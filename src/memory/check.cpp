#include "memory/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace sluice::memory {

void fail_check(std::string_view what) {
  std::fprintf(stderr, "sluice: broken precondition: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

}  // namespace sluice::memory
