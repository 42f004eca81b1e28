#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/directory.hpp"
#include "peers/work.hpp"
#include "sluice/status.hpp"

namespace sluice::bench {

/// A file a tensor, as others keep them; gone with this.
class TensorFiles {
 public:
  /// Requires: tensor_bytes is a multiple of 4 KiB, `memory` has room for one tensor and is aligned for the drive.
  static Result<TensorFiles> make(const std::string& directory, std::uint64_t tensor_bytes, std::size_t count,
                                  std::span<std::byte> memory);
  ~TensorFiles();
  TensorFiles(TensorFiles&& other) noexcept;
  TensorFiles& operator=(TensorFiles&&) = delete;

  /// Reads one tensor after the other: opens its file for O_DIRECT, reads it at once, closes it.
  Result<peers::Moved> read_by_pread() const;

  /// The same by a ring: a tensor's pieces of at most `piece_bytes` are in flight together, and all have arrived
  /// before the next tensor is begun.
  Result<peers::Moved> read_by_uring(std::uint64_t piece_bytes) const;

 private:
  TensorFiles() = default;
  io::Descriptor open(std::size_t index) const;

  std::string folder_;
  std::uint64_t tensor_bytes_ = 0;
  std::size_t count_ = 0;
  std::span<std::byte> memory_;
};

}  // namespace sluice::bench
