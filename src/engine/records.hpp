#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
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
  /// A whole record to a slot.
  void write(std::uint32_t chunk, io::Place slot, const std::byte* record, Done done);

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
  /// Fills in where the gradient of `movement.chunk` is on the drive.
  void move_gradient(Movement movement, Done done);
  static void finished(io::Transfer& transfer);

  State& state_;
  std::deque<Op> ops_;  // stable addresses; as many as were ever in flight at once
  std::vector<Op*> free_;
};

/// XXH3 checksum of a plane, tile by tile on the compute threads; `done` is called on the loop.
/// Lifetime: the plane stays until then.
struct PlaneView {
  const std::byte* data = nullptr;
  std::uint32_t elements = 0;
  std::uint32_t element_bytes = 0;
};
void hash_plane(Compute& compute, PlaneView plane, std::function<void(std::uint64_t checksum)> done);

/// The error for a plane that does not hash to what was written.
Status checksum_mismatch(const State& state, std::uint32_t chunk, const char* what);

}  // namespace sluice::engine
