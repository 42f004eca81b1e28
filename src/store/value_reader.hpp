#pragma once

#include <cstdint>
#include <vector>

#include "sluice/status.hpp"
#include "sluice/types.hpp"
#include "store/store_reader.hpp"

namespace sluice::store {

/// Reads a stored state as the fp32 values that its planes stand for, whatever its policies.
/// Threads: one at a time. Memory: 1 MiB beside the reader's.
class ValueReader {
 public:
  explicit ValueReader(StoreReader& reader) : reader_(reader) {}

  /// What the optimizer updates; of a frozen parameter its weights, widened.
  /// Shape: target [range.count].
  /// Errors: as StoreReader::read(); kInvalidArgument for frozen weights of a dtype that is not F32, BF16 or F16.
  Status read_master(std::uint32_t parameter, Range range, float* target);

  /// Moment1 or moment2.
  /// Shape: target [range.count]. Requires: the parameter has the plane; range.first is a multiple of 256 if it is
  /// kept in 8 bits. Errors: as StoreReader::read().
  Status read_moment(std::uint32_t parameter, Plane moment, Range range, float* target);

 private:
  /// Values of a plane as they are stored, in a buffer. Lifetime: until its next call with the same buffer.
  Result<const std::byte*> fetch(std::uint32_t parameter, const PlaneFormat& format, Range range,
                                 std::vector<std::byte>& buffer);

  StoreReader& reader_;
  std::vector<std::byte> first_, second_;
};

}  // namespace sluice::store
