#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/mounts.hpp"

namespace sluice::memory {

inline constexpr int kUnknownNode = -1;

/// A block device and what it is made of, down to what is attached to the machine.
/// Invariant: `below` is empty exactly for a device that stands on no other that can be seen.
struct BlockDevice {
  std::string number;  ///< "259:1"
  std::string name;    ///< "nvme0n1p1", "dm-0", "md127"
  std::string folder;  ///< in /sys without links, the root in front
  /// A partition's whole drive, the parts of a mapping or a RAID, the drive of a loop device's file.
  std::vector<BlockDevice> below;
  /// That a device with nothing below it is attached to, more than one behind several controllers;
  /// {kUnknownNode} where nothing tells.
  std::vector<int> numa_nodes;
};

/// Where a directory is kept.
struct DrivePlace {
  std::optional<Mount> mount;         ///< nothing when /proc does not tell
  std::optional<BlockDevice> device;  ///< nothing when the file system has no block device
};

/// Reads <root>/proc/self/mountinfo and <root>/sys. `directory` is absolute, or relative with an empty root.
/// Threads: any.
/// Cost: some tens of reads of pseudo-files.
/// Source: the kernel's Documentation/ABI/stable/sysfs-block and testing/sysfs-bus-pci.
DrivePlace find_drive(const std::string& directory, const std::string& root = "");

/// The devices with nothing below them, in order.
std::vector<const BlockDevice*> attached_devices(const BlockDevice& device);

/// The NUMA nodes of all of them, ascending; kUnknownNode among them if one does not tell.
std::vector<int> numa_nodes_of(const BlockDevice& device);

}  // namespace sluice::memory
