#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/parts.hpp"
#include "sluice/sluice.hpp"
#include "support/device/sim_device.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_world.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::sim {

/// Compute whose tasks run, whole, at a random later moment of a world.
class SimCompute final : public engine::Compute {
 public:
  SimCompute(SimWorld& world, std::function<void()> wake) : world_(world), wake_(std::move(wake)) {}

  void submit(engine::ComputeTask& task) override {
    world_.post([this, &task] {
      // The order of tiles is the simulator's too.
      std::vector<std::uint32_t> tiles(task.tiles());
      for (std::uint32_t i = 0; i < tiles.size(); ++i) tiles[i] = i;
      for (std::size_t left = tiles.size(); left > 0; --left) {
        std::swap(tiles[left - 1], tiles[world_.below(left)]);
        task.run(tiles[left - 1]);
      }
      task.finish();
      finished_.push_back(&task);
      wake_();
    });
  }
  engine::ComputeTask* poll() override {
    if (finished_.empty()) return nullptr;
    engine::ComputeTask* task = finished_.back();
    finished_.pop_back();
    return task;
  }
  std::uint32_t threads() const override { return 1; }

 private:
  SimWorld& world_;
  std::function<void()> wake_;
  std::vector<engine::ComputeTask*> finished_;
};

/// Everything outside an engine, simulated from one seed: the drive, the device, the compute threads, the
/// clock. The engine's files are real, in a temporary directory; its loop turns inside the calls of the test.
class SimHouse {
 public:
  explicit SimHouse(std::uint64_t seed, Beneath beneath = Beneath::kTemporary)
      : world(seed), directory(beneath) {}

  Result<std::unique_ptr<Engine>> make_engine(EngineOptions options) {
    auto device = std::make_shared<SimDevice>(
        [this](std::function<void()> event) { world.post(std::move(event)); }, device_options);
    engine::Parts parts;
    parts.loop = engine::LoopMode::kInline;
    parts.open_backend = [this](const io::BackendOptions& asked) -> Result<io::SelectedBackend> {
      if (on_open_backend) on_open_backend(asked);
      auto opened = std::make_unique<SimBackend>(world, drive_options);
      backend = opened.get();
      for (const Fault& fault : faults) backend->faults().add(fault);
      return io::SelectedBackend{
          .backend = std::move(opened), .kind = io::BackendKind::kThreads, .fallback_reason = {}};
    };
    parts.open_compute = [this](std::uint32_t,
                                std::function<void()> wake) -> Result<std::unique_ptr<engine::Compute>> {
      return std::unique_ptr<engine::Compute>(std::make_unique<SimCompute>(world, std::move(wake)));
    };
    parts.probe_drive = probe_drive;
    parts.now_ns = [this] { return world.now_ns(); };
    return engine::Access::create(std::move(options), std::move(device), make_single_communicator(),
                                  std::move(parts));
  }

  SimWorld world;
  TemporaryDirectory directory;
  SimDeviceOptions device_options;
  SimOptions drive_options;
  std::function<void(const io::BackendOptions&)> on_open_backend;
  engine::ProbeDrive probe_drive;  ///< null: drives are not measured
  std::vector<Fault> faults;       ///< from the start, seal() included
  SimBackend* backend = nullptr;   ///< of the engine made last
};

}  // namespace sluice::sim
