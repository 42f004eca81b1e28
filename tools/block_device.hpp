#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice::tools {

/// The whole drive that a directory's file system is on, as far as /sys tells.
struct BlockDevice {
  std::string number;                          ///< "major:minor" of the file system's device
  std::string name;                            ///< of the whole drive, "nvme0n1"; empty: not on one
  std::string text;                            ///< name, model, kind
  std::optional<std::uint64_t> bytes_written;  ///< to the whole drive by everybody since it was attached
};

/// Fields that cannot be found out stay empty.
/// Source: proc(5); the kernel's Documentation/block/stat.rst: field 7 counts sectors of 512 bytes.
BlockDevice find_block_device(const std::string& directory);

}  // namespace sluice::tools
