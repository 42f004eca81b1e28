#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/compute.hpp"
#include "engine/state.hpp"
#include "kernels/update.hpp"

namespace sluice::engine {

/// The finished numbers of one step of one tensor. Equal ones make equal updates of equal state.
struct Factors {
  kernels::Factors rule;
  std::uint64_t dither_key = 0;  ///< of the random bits that moments are rounded with
  friend bool operator==(const Factors&, const Factors&) = default;
};

/// Those of the next step of `tensor`; gradients are multiplied by `gradient_factor`.
Factors make_factors(const State& state, std::uint32_t tensor, double gradient_factor);

/// What one step does to which tensor: no factors, no change.
/// Shape: by tensor.
using StepFactors = std::vector<std::optional<Factors>>;

enum class Checksums : std::uint8_t {
  kVerifyAndRenew,  ///< a record from a drive: hashed before and after
  kNone,            ///< a record that stays in memory
};

struct UpdateResult {
  bool verified = true;                               ///< every plane hashed to what the chunk says
  std::array<std::uint64_t, kMaxPlanes> checksums{};  ///< of the new planes
  std::uint64_t overflowed = 0;  ///< of all elements of the record as it is then, updated or not
};

struct UpdateJob {
  std::uint32_t chunk = 0;
  std::byte* record = nullptr;  ///< updated in place
  const std::byte* gradient = nullptr;
  const StepFactors* factors = nullptr;
  Checksums checksums = Checksums::kVerifyAndRenew;
};

/// Updates a chunk's record in place on the compute threads, in one pass over memory: a tile's
/// bytes are hashed as they were and as they are by the kernel that updates them. `done` is called on the
/// loop.
/// Lifetime: everything the job points at stays until then.
void update_chunk(const State& state, const UpdateJob& job, std::function<void(const UpdateResult&)> done);

}  // namespace sluice::engine
