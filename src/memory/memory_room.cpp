#include "memory/memory_room.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "memory/pseudo_file.hpp"

namespace sluice::memory {

std::uint64_t MemoryRoom::bytes() const { return std::min(available_bytes, cgroup.memory_room_bytes); }

std::string MemoryRoom::to_string() const {
  std::string text = available_bytes == kNoLimit
                         ? std::string("RAM: unknown")
                         : fmt::format("RAM: {} bytes available of {}", available_bytes, machine_bytes);
  if (cgroup.memory_bytes != kNoLimit)
    text += fmt::format("; control group: {} bytes left of {} ({})", cgroup.memory_room_bytes,
                        cgroup.memory_bytes, cgroup.memory_file);
  return text;
}

MemoryRoom read_memory_room(const std::string& root) {
  constexpr std::uint64_t kKibibyte = 1024;
  MemoryRoom room{.cgroup = read_cgroup_limits(root)};
  const std::string text = read_pseudo_file(root + "/proc/meminfo").value_or("");
  if (const auto total = number_of_line(text, "MemTotal:")) room.machine_bytes = *total * kKibibyte;
  if (const auto available = number_of_line(text, "MemAvailable:"))
    room.available_bytes = *available * kKibibyte;
  return room;
}

}  // namespace sluice::memory
