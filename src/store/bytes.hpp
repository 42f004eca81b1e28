#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "memory/check.hpp"

namespace sluice::store {

/// Writes numbers little-endian, one after the other, into bytes of the caller.
/// Requires: every write fits; one that does not ends the process.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> target) : target_(target) {}

  template <std::unsigned_integral T>
  void put(T value) {
    const std::span<std::byte> bytes = next(sizeof(T));
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  }
  void put(double value) { put(std::bit_cast<std::uint64_t>(value)); }
  void put(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), next(bytes.size()).begin());
  }
  void put(std::string_view text) { put(std::as_bytes(std::span(text))); }

  /// Zeros up to `offset`, counted from the front. Requires: at() <= offset.
  void zero_until(std::size_t offset) { std::ranges::fill(next(offset - at_), std::byte{0}); }

  std::size_t at() const { return at_; }

 private:
  std::span<std::byte> next(std::size_t bytes) {
    if (bytes > target_.size() - at_) memory::fail_check("encoded bytes do not fit their target");
    at_ += bytes;
    return target_.subspan(at_ - bytes, bytes);
  }

  std::span<std::byte> target_;
  std::size_t at_ = 0;
};

/// Reads them again. A read past the end gives zeros and nothing, and ok() stays false from then on: a table
/// is read to its end and asked once.
/// Lifetime: what take() gives lies in the caller's bytes.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> source) : source_(source) {}

  template <std::unsigned_integral T>
  T get() {
    T value = 0;
    std::size_t shift = 0;
    for (const std::byte byte : take(sizeof(T))) {
      value = static_cast<T>(value | static_cast<T>(std::to_integer<T>(byte) << shift));
      shift += 8;
    }
    return value;
  }
  double get_double() { return std::bit_cast<double>(get<std::uint64_t>()); }
  std::span<const std::byte> take(std::size_t bytes) {
    ok_ = ok_ && bytes <= remaining();
    if (!ok_) return {};
    at_ += bytes;
    return source_.subspan(at_ - bytes, bytes);
  }
  std::string take_text(std::size_t bytes) {
    const std::span<const std::byte> text = take(bytes);
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  /// What lies between here and `offset`. Requires: at() <= offset.
  std::span<const std::byte> take_until(std::size_t offset) { return take(offset - at_); }

  /// Whether `count` items of `item_bytes` each, at least, can follow.
  bool holds(std::uint64_t count, std::uint64_t item_bytes) const {
    return ok_ && count <= remaining() / item_bytes;
  }

  bool ok() const { return ok_; }
  std::size_t at() const { return at_; }
  std::size_t remaining() const { return source_.size() - at_; }

 private:
  std::span<const std::byte> source_;
  std::size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace sluice::store
