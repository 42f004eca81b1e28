#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "engine/compute.hpp"
#include "engine/drive_choice.hpp"
#include "engine/loop.hpp"
#include "io/open_backend.hpp"
#include "sluice/engine.hpp"

namespace sluice::engine {

class Core;

/// The outside things an engine is made of besides its device and communicator: real ones, or a simulator's.
struct Parts {
  LoopMode loop = LoopMode::kThread;
  std::function<Result<io::SelectedBackend>(const io::BackendOptions&)> open_backend = io::open_backend;
  std::function<Result<std::unique_ptr<Compute>>(std::uint32_t threads, std::function<void()> wake)>
      open_compute = make_thread_compute;
  /// Null: no drive is measured.
  ProbeDrive probe_drive = probe_with_backend;
  /// For the waits that stats report.
  std::function<std::int64_t()> now_ns = io::steady_now_ns;
};

/// What is inside a public engine, for the tests and the benchmarks of this library.
struct Access {
  /// Engine::create with other parts.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options, std::shared_ptr<Device> device,
                                                std::shared_ptr<Communicator> communicator, Parts parts);
  static Core& core(Engine& engine);
};

}  // namespace sluice::engine
