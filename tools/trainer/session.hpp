#pragma once

#include <memory>

#include "sluice/engine.hpp"
#include "trainer/registry.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {

/// A sealed engine that holds a model.
struct Session {
  std::unique_ptr<Engine> engine;
  Registry registry;
  SealReport layout;
  std::uint64_t host_memory_bytes = 0;
  std::uint64_t device_memory_bytes = 0;
};

/// Creates an engine over a device in host memory, registers the model and seals.
/// Errors: the engine's.
Result<Session> open_session(const TrainOptions& options);

}  // namespace sluice::trainer
