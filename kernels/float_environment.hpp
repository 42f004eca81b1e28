#pragma once

#include <cfenv>

namespace sluice::kernels {

/// Holds this thread's floating-point control at the default (to nearest, denormals kept, no traps) for its
/// lifetime, so that what a host program set (a rounding mode, FTZ or DAZ from -ffast-math) never shows in a
/// result. Cost: about 0.1 us.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

}  // namespace sluice::kernels
