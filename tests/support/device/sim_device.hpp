#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "memory/budget.hpp"
#include "sluice/device.hpp"

namespace sluice::sim {

struct SimDeviceOptions {
  std::uint64_t capacity_bytes = UINT64_MAX;
  std::uint64_t fail_copy = 0;  ///< the copy that fails, counted from 1 over all sessions; 0: none
};

/// A device whose copies are done when the test runs what was posted: their order, and the moment at which
/// bytes are read and written, are the test's. From submit() on the target holds 0xCD bytes, after a failed
/// copy 0xEE.
/// Threads: one, the one that runs what was posted.
/// Lifetime: what was posted may be run or dropped at any time; a copy whose completion was dropped finishes
/// when its session is destroyed.
class SimDevice final : public Device {
 public:
  using Post = std::function<void(std::function<void()>)>;

  /// `post` takes each copy's completion, from within submit(); it must not run it there.
  explicit SimDevice(Post post, SimDeviceOptions options = {});

  std::string name() const override { return "simulated"; }
  Location location() const override { return Location::kHost; }
  std::uint64_t available_bytes() const override { return budget_.free_bytes(); }
  Result<std::unique_ptr<DeviceSession>> open(DeviceSessionOptions options) override;

  /// Copies submitted so far, over all sessions.
  std::uint64_t copies() const { return shared_->submitted; }

 private:
  friend class SimSession;
  struct Shared {
    Post post;
    std::uint64_t fail_copy;
    std::uint64_t submitted = 0;
  };

  memory::Budget budget_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace sluice::sim
