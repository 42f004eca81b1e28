#include "engine/state.hpp"

#include <fmt/format.h>

namespace sluice::engine {

std::string State::describe(std::uint32_t chunk) const {
  const std::span<const store::Segment> segments = layout.segments_of(chunk);
  if (segments.empty()) return "no parameter";
  const std::string& first = registry.tensors()[segments.front().parameter].name;
  const std::string& last = registry.tensors()[segments.back().parameter].name;
  if (segments.size() == 1) {
    const store::Segment& only = segments.front();
    return fmt::format("'{}' elements {}..{}", first, only.first, only.first + only.count);
  }
  return fmt::format("'{}' to '{}'", first, last);
}

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t grid) { return (bytes + grid - 1) / grid * grid; }

}  // namespace sluice::engine
