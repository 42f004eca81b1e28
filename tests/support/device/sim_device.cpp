#include "support/device/sim_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "memory/arena.hpp"

namespace sluice::sim {
namespace {

void fill(const DeviceCopy& copy, int byte) {
  if (copy.bytes != 0) std::memset(copy.target, byte, copy.bytes);
}

}  // namespace

class SimSession final : public DeviceSession {
 public:
  SimSession(memory::Reservation reservation, memory::Arena arena, std::shared_ptr<SimDevice::Shared> device,
             std::function<void()> on_finished)
      : reservation_(std::move(reservation)),
        arena_(std::move(arena)),
        device_(std::move(device)),
        copies_(std::make_shared<Copies>()) {
    copies_->on_finished = std::move(on_finished);
  }

  ~SimSession() override {
    // on_finished may submit or post no more: its owner is going away.
    copies_->on_finished = nullptr;
    while (!copies_->pending.empty()) copies_->finish(copies_->pending.front().copy);
  }

  std::span<std::byte> arena() override { return arena_.span(); }
  bool host_accessible() const override { return true; }

  void submit(DeviceCopy& copy) override {
    const std::uint64_t number = ++device_->submitted;
    Status status;
    if (number == device_->fail_copy)
      status =
          Status(Code::kIoError, fmt::format("simulated device: copy {} of {} bytes", number, copy.bytes));
    fill(copy, 0xCD);
    copies_->pending.push_back({&copy, std::move(status)});
    device_->post([copies = std::weak_ptr(copies_), &copy] {
      if (const auto live = copies.lock()) live->finish(&copy);
    });
  }

  DeviceCopy* poll() override {
    if (copies_->finished.empty()) return nullptr;
    DeviceCopy* copy = copies_->finished.front();
    copies_->finished.pop_front();
    return copy;
  }

  Status wait_for(Stream stream) override {
    if (stream.native == nullptr) return {};
    return Status(
        Code::kInvalidArgument,
        fmt::format("stream: {} is not null, the simulated device has no streams", fmt::ptr(stream.native)));
  }

  std::string backing() const override { return arena_.backing(); }

 private:
  struct Pending {
    DeviceCopy* copy;
    Status status;  // what it will finish with
  };
  struct Copies {
    std::vector<Pending> pending;
    std::deque<DeviceCopy*> finished;
    std::function<void()> on_finished;

    void finish(DeviceCopy* copy) {
      const auto entry =
          std::find_if(pending.begin(), pending.end(), [&](const Pending& p) { return p.copy == copy; });
      copy->status = std::move(entry->status);
      pending.erase(entry);
      if (!copy->status.ok())
        fill(*copy, 0xEE);
      else if (copy->bytes != 0)
        std::memcpy(copy->target, copy->source, copy->bytes);
      finished.push_back(copy);
      if (on_finished) on_finished();
    }
  };

  memory::Reservation reservation_;
  memory::Arena arena_;
  std::shared_ptr<SimDevice::Shared> device_;
  std::shared_ptr<Copies> copies_;
};

SimDevice::SimDevice(Post post, SimDeviceOptions options)
    : budget_("simulated device", options.capacity_bytes),
      shared_(std::make_shared<Shared>(Shared{std::move(post), options.fail_copy})) {}

Result<std::unique_ptr<DeviceSession>> SimDevice::open(DeviceSessionOptions options) {
  Result<memory::Reservation> reservation = budget_.reserve(options.arena_bytes, "a session's arena");
  if (!reservation.ok()) return reservation.status();
  Result<memory::Arena> arena =
      memory::Arena::create({.bytes = options.arena_bytes, .purpose = "simulated device's arena"});
  if (!arena.ok()) return arena.status();
  return std::unique_ptr<DeviceSession>(std::make_unique<SimSession>(
      std::move(reservation).value(), std::move(arena).value(), shared_, std::move(options.on_finished)));
}

}  // namespace sluice::sim
