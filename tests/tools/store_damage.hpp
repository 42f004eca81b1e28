#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sluice::tools {

/// Where one byte of a committed plane lies.
struct PlaneByte {
  std::string path;          ///< of the container
  std::uint64_t offset = 0;  ///< in it
};

/// The byte of the first plane byte of `element` (of the whole parameter) in the commit of that number.
PlaneByte find_plane_byte(const std::string& directory, std::uint64_t commit, const std::string& parameter,
                          std::uint64_t element, std::size_t plane);

/// Flips the lowest bit of a byte.
void flip(const PlaneByte& byte);

}  // namespace sluice::tools
