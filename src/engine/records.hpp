#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <vector>

#include "engine/state.hpp"

namespace sluice::engine {

/// Consecutive planes of a record.
struct PlaneRange {
  std::size_t first = 0;
  std::size_t count = 1;
};

/// Movement of planes between frames and slots, counted, each failure naming the parameters it concerns. What
/// is read is not verified here: see hash_plane and the step's tiles.
/// Threads: the loop's.
/// Lifetime: buffers stay until `done` is called.
class Records {
 public:
  explicit Records(State& state) : state_(state) {}

  /// The planes from the chunk's current slot to their offsets in `record`.
  void read(std::uint32_t chunk, PlaneRange planes, std::byte* record, io::Priority priority, Done done);
  /// The same from a slot that a kept commit names.
  void read_from(std::uint32_t chunk, io::Place slot, PlaneRange planes, std::byte* record, Done done);
  /// A whole record to a slot.
  void write(std::uint32_t chunk, io::Place slot, const std::byte* record, Done done);
  /// The same of a record that stays in memory, for a commit.
  void save(std::uint32_t chunk, io::Place slot, const std::byte* record, Done done);

  /// A gradient plane to and from the chunk's place in the spill file.
  void read_gradient(std::uint32_t chunk, std::byte* plane, io::Priority priority, Done done);
  void write_gradient(std::uint32_t chunk, const std::byte* plane, Done done);

 private:
  struct Op : io::Transfer {
    Records* records = nullptr;
    std::uint32_t chunk = 0;
    const char* what = "";
    Done done;
  };
  struct Movement {
    io::Op op = io::Op::kRead;
    io::Priority priority = io::Priority::kDemand;
    std::uint32_t chunk = 0;
    const char* what = "";
    io::Place place = {};
    const io::File* file = nullptr;
    std::byte* buffer = nullptr;
    std::uint64_t bytes = 0;
    Counters::Counter* counter = nullptr;
  };
  void move(const Movement& movement, Done done);
  void read_planes(Movement movement, PlaneRange planes, std::byte* record, Done done);
  void write_record(Movement movement, const std::byte* record, Done done);
  /// Fills in where the gradient of `movement.chunk` is on the drive.
  void move_gradient(Movement movement, Done done);
  static void finished(io::Transfer& transfer);

  State& state_;
  std::deque<Op> ops_;  // stable addresses; as many as were ever in flight at once
  std::vector<Op*> free_;
};

/// By plane of a chunk's class.
using PlaneChecksums = std::array<std::uint64_t, kMaxPlanes>;

/// XXH3 checksums of planes of a chunk's record, tile by tile on the compute threads; `done` is called on the loop,
/// with 0 for the other planes.
/// Lifetime: the record stays until then.
void hash_planes(const State& state, std::uint32_t chunk, PlaneRange planes, const std::byte* record,
                 std::function<void(const PlaneChecksums&)> done);

/// Whether two records agree in these planes.
bool equal_planes(PlaneRange planes, const PlaneChecksums& a, const PlaneChecksums& b);

/// The same for a plane that is no part of a record.
struct PlaneView {
  const std::byte* data = nullptr;
  std::uint32_t elements = 0;
  std::uint32_t value_bytes = 0;
  std::uint32_t elements_per_value = 1;
};
void hash_plane(Compute& compute, PlaneView plane, std::function<void(std::uint64_t checksum)> done);

/// The error for a plane that does not hash to what was written; `copy` says where a good one is.
Status checksum_mismatch(const State& state, std::uint32_t chunk, const char* what,
                         std::string_view copy = {});

}  // namespace sluice::engine
