#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/state.hpp"

namespace sluice::engine {

/// What first values depend on.
struct FirstValues {
  std::uint64_t seed = 0;
  std::vector<bool> recovered =
      {};  ///< by tensor: its values come from a store, zeros until then; empty: none
  bool wanted(std::uint32_t tensor) const { return recovered.empty() || !recovered[tensor]; }
};

/// Fills one tile of a new record: first values of the weights (and what is kept of their masters), zero moments, zero gaps.
/// Returns, through `overflowed`, how many finite values show an infinite weight.
/// Errors: those of an InitialCallback, naming the parameter.
/// Threads: any, one a tile; a tile with a callback on the thread that called seal().
Status fill_tile(const State& state, const FirstValues& first_values, std::uint32_t chunk, std::uint32_t tile,
                 std::byte* record, std::uint64_t& overflowed);

/// Whether any of a chunk's parameters calls the trainer for its first values.
bool has_callback(const State& state, const FirstValues& first_values, std::uint32_t chunk);

}  // namespace sluice::engine
