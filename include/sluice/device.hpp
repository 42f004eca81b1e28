#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "sluice/status.hpp"
#include "sluice/tensor.hpp"

namespace sluice {

/// One copy between host memory and the device arena, or within either. 0 bytes are an ordinary copy.
/// Requires: source and target do not overlap.
/// Lifetime: caller-owned and intrusive; it and its buffers stay valid until DeviceSession::poll() returns it.
struct DeviceCopy {
  void* target = nullptr;
  const void* source = nullptr;
  std::uint64_t bytes = 0;
  Status status{};  ///< set before poll() returns the copy
  DeviceCopy* next = nullptr;
  void* owner = nullptr;  ///< the submitter's; untouched
};

struct DeviceSessionOptions {
  std::uint64_t arena_bytes = 0;
  /// Called from any thread after a copy has finished and poll() can return it; must not block. Empty: the owner
  /// polls. Not called once the session's destructor has returned.
  std::function<void()> on_finished{};
};

/// One engine's share of a device: an arena of exactly `arena_bytes` and asynchronous copies.
/// Threads: all but the destructor from the engine's control loop alone.
class SLUICE_API DeviceSession {
 public:
  virtual ~DeviceSession() = default;  ///< drains

  /// The arena, 4096-byte aligned. Host code may touch it only if host_accessible().
  virtual std::span<std::byte> arena() = 0;
  virtual bool host_accessible() const = 0;

  /// Starts a copy; copies finish in any order.
  /// Blocks: never.
  virtual void submit(DeviceCopy& copy) = 0;

  /// A finished copy, or null. Each submitted copy is returned exactly once.
  virtual DeviceCopy* poll() = 0;

  /// Orders what follows after the work that `stream` holds at this moment.
  /// Errors: kInvalidArgument for a stream that this device does not know.
  virtual Status wait_for(Stream stream) = 0;

  /// How the arena is backed, for stats: "huge pages", "4 KiB pages".
  virtual std::string backing() const = 0;
};

/// A place where fetched weights live: GPU memory, or host memory under the same contract.
/// Threads: any.
class SLUICE_API Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual Location location() const = 0;

  /// Bytes that sessions may still reserve.
  virtual std::uint64_t available_bytes() const = 0;

  /// Errors: kResourceExhausted with what was asked, what is left and the capacity.
  virtual Result<std::unique_ptr<DeviceSession>> open(DeviceSessionOptions options) = 0;
};

struct HostDeviceOptions {
  std::uint64_t capacity_bytes = UINT64_MAX;  ///< over all sessions; what cannot be had is refused by open()
  std::uint32_t copy_threads = 1;             ///< a session; 1..64
};

/// A device in host memory: the same contract without a GPU. Only the null stream exists.
SLUICE_API Result<std::shared_ptr<Device>> make_host_device(HostDeviceOptions options = {});

}  // namespace sluice
