#pragma once

#include <functional>
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

/// What is asked before a commit is gone on from, with what it holds: an error leaves every store as it was. May be
/// called again with the same.
using Acceptance = std::function<Status(const Recovered&)>;

/// Creates an engine over a device in host memory, registers the model and seals.
/// Errors: the engine's, and that of `accept`.
Result<Session> open_session(const TrainOptions& options, const Acceptance& accept);

}  // namespace sluice::trainer
