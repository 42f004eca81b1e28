#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/state.hpp"
#include "sluice/options.hpp"
#include "store/store_reader.hpp"

namespace sluice::engine {

/// A stored state that a new one is filled from, parameter by parameter.
struct Source {
  store::StoreReader* reader = nullptr;
  /// By tensor: its index in the reader's parameters; none: it gets its first values.
  std::vector<std::optional<std::uint32_t>> parameters;
  /// By tensor: whether moments and step count go on as the store has them. Not where the rule is another one, whose
  /// moments are not the same means: an AdamW that began with the sums of an Adagrad, or late counts beside no moments,
  /// would make steps of any size. Adam and AdamW share theirs. Nor where either is frozen, which has no moments.
  std::vector<bool> keeps_moments;
  std::vector<std::string> differences;  ///< in words, what store and trainer do not share
};

/// Finds every tensor in the store by its name.
/// Errors: kInvalidArgument listing the missing, extra and mismatched names that `allowed` does not cover.
Result<Source> match(const Registry& registry, store::StoreReader& reader, const RecoveryOptions& allowed);

/// Copies a chunk's elements from the store into a record that was filled with zeros or first values. What is kept alike
/// is copied bit for bit; between policies the fp32 master and the moments' fp32 values are what stays, rounded as
/// Engine::write rounds them. Moments that the store does not have or that are not kept stay zero.
/// Errors: what the store's drives say; kInvalidArgument for a frozen dtype that has no conversion.
Status copy_chunk(const State& state, const Source& source, std::uint32_t chunk, std::byte* record);

}  // namespace sluice::engine
