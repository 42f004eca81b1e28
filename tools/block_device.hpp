#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memory/drive_tree.hpp"
#include "tools/doctor/checks.hpp"

namespace sluice::tools {

/// Each layer in words, from the file system's device down: "dm-0 (LVM volume group-data) on nvme0n1p2 (partition)
/// on nvme0n1 (Samsung SSD 990 PRO 2TB, not rotational)"; several below one are in brackets.
std::string describe_device(const memory::BlockDevice& device);

/// What of a device and of those below it costs speed or safety, with the remedy; and how the attached ones' queues
/// are set.
void add_device_findings(const memory::BlockDevice& device, Findings& findings);

/// By everybody since the device was attached: a partition's of its whole drive.
/// Source: the kernel's Documentation/block/stat.rst: field 7 counts sectors of 512 bytes.
std::optional<std::uint64_t> bytes_written(const memory::BlockDevice& device);

}  // namespace sluice::tools
