#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "device/copy_crew.hpp"
#include "memory/arena.hpp"
#include "memory/budget.hpp"
#include "memory/topology.hpp"
#include "sluice/device.hpp"

namespace sluice {
namespace {

class HostSession final : public DeviceSession {
 public:
  HostSession(memory::Reservation reservation, memory::Arena arena, std::unique_ptr<device::CopyCrew> crew)
      : owner_(getpid()),
        reservation_(std::move(reservation)),
        arena_(std::move(arena)),
        crew_(std::move(crew)) {}

  // A forked child has the crew's memory and not its threads, which would be waited for without end.
  ~HostSession() override {
    if (getpid() != owner_) static_cast<void>(crew_.release());
  }

  std::span<std::byte> arena() override { return arena_.span(); }
  bool host_accessible() const override { return true; }
  void submit(DeviceCopy& copy) override { crew_->submit(copy); }
  DeviceCopy* poll() override { return crew_->poll(); }
  std::string backing() const override { return arena_.backing(); }

  Status wait_for(Stream stream) override {
    if (stream.native == nullptr) return {};
    return Status(
        Code::kInvalidArgument,
        fmt::format("stream: {} is not null, the host device has no streams", fmt::ptr(stream.native)));
  }

 private:
  const pid_t owner_;
  memory::Reservation reservation_;
  memory::Arena arena_;
  std::unique_ptr<device::CopyCrew> crew_;  // ends before the arena that it copies into
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(const HostDeviceOptions& options)
      : copy_threads_(options.copy_threads), budget_("host device", options.capacity_bytes) {}

  std::string name() const override { return "host"; }
  Location location() const override { return Location::kHost; }
  std::uint64_t available_bytes() const override { return budget_.free_bytes(); }

  Result<std::unique_ptr<DeviceSession>> open(DeviceSessionOptions options) override {
    Result<memory::Reservation> reservation = budget_.reserve(options.arena_bytes, "a session's arena");
    if (!reservation.ok()) return reservation.status();
    const Result<memory::Topology> topology = memory::read_topology();
    Result<memory::Arena> arena = memory::Arena::create({
        .bytes = options.arena_bytes,
        .purpose = "device arena in host memory",
        .prefault_threads = topology.ok() ? std::min(topology->threads(), 64u) : 1,
    });
    if (!arena.ok()) return arena.status();
    auto crew = std::make_unique<device::CopyCrew>(copy_threads_, std::move(options.on_finished));
    SLUICE_RETURN_IF_ERROR(crew->start());
    return std::unique_ptr<DeviceSession>(std::make_unique<HostSession>(
        std::move(reservation).value(), std::move(arena).value(), std::move(crew)));
  }

 private:
  const std::uint32_t copy_threads_;
  memory::Budget budget_;
};

}  // namespace

Result<std::shared_ptr<Device>> make_host_device(HostDeviceOptions options) {
  if (options.copy_threads < 1 || options.copy_threads > 64)
    return Status(Code::kInvalidArgument,
                  fmt::format("copy_threads: {} is not in 1..64", options.copy_threads));
  return std::shared_ptr<Device>(std::make_shared<HostDevice>(options));
}

}  // namespace sluice
