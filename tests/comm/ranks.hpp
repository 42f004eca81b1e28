#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "sluice/communicator.hpp"

namespace sluice {

using Ranks = std::vector<std::shared_ptr<Communicator>>;

/// Runs `body` with each rank's communicator on a thread of its own; returns when all have.
inline void on_every_rank(const Ranks& ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace sluice
