#include "support/workplace.hpp"

#include <algorithm>

#include "kernels/constants.hpp"
#include "memory/topology.hpp"

namespace sluice::bench {
namespace {

constexpr std::size_t kArenaBytes = std::size_t{3} << 29;
constexpr std::size_t kChunkElements = std::size_t{1} << 20;
constexpr std::size_t kSmallChunkElements = 2 * kernels::kTileElements;

}  // namespace

std::string place_name(Place place) { return place == Place::kInCache ? "in_cache" : "out_of_cache"; }

Result<Workplace> Workplace::create(Effort effort) {
  SLUICE_ASSIGN_OR_RETURN(const memory::Topology topology, memory::read_topology());
  Workplace place;
  place.threads = topology.threads();
  place.effort = effort;
  const std::size_t chunk_a_thread_bytes = place.threads * place.chunk_elements() * kElementBytesMax;
  SLUICE_ASSIGN_OR_RETURN(
      place.arena, memory::Arena::create(
                       {.bytes = std::max(chunk_a_thread_bytes, effort == Effort::kMeasure ? kArenaBytes : 0),
                        .purpose = "the benchmarks' arena",
                        .prefault_threads = topology.threads()}));
  return place;
}

std::size_t Workplace::chunk_elements() const {
  return effort == Effort::kMeasure ? kChunkElements : kSmallChunkElements;
}

std::size_t Workplace::passes(Place place) const {
  return place == Place::kInCache && effort == Effort::kMeasure ? 2000 : 1;
}

std::vector<std::size_t> Workplace::thread_counts() const {
  if (threads == 1) return {1};
  return {1, threads};
}

}  // namespace sluice::bench
