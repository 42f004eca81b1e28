#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/state.hpp"

namespace sluice::engine {

/// Fills one tile of a new record: first values of the weights (and residuals), zero moments, zero gaps.
/// Returns, through `overflowed`, how many finite values show an infinite bf16 weight.
/// Errors: those of an InitialCallback, naming the parameter.
/// Threads: any, one a tile; a tile with a callback on the thread that called seal().
Status fill_tile(const State& state, std::uint64_t seed, std::uint32_t chunk, std::uint32_t tile,
                 std::byte* record, std::uint64_t& overflowed);

/// Whether any of a chunk's parameters calls the trainer for its first values.
bool has_callback(const State& state, std::uint32_t chunk);

}  // namespace sluice::engine
