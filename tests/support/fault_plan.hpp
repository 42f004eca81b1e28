#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "io/backend.hpp"

namespace sluice::sim {

/// A rule for what goes wrong: of the requests that it matches it lets `skip` pass, then hits the next
/// `count`, each with `probability`.
struct Fault {
  static constexpr int kShort = -1;    ///< a random part is moved, at least one byte
  static constexpr int kNothing = -2;  ///< 0 bytes are moved, and that is called a success
  static constexpr int kAnyFile = -1;
  static constexpr std::uint64_t kForever = std::numeric_limits<std::uint64_t>::max();

  io::Op op = io::Op::kRead;
  int error = kShort;  ///< a positive errno, kShort or kNothing
  std::uint64_t skip = 0;
  std::uint64_t count = kForever;
  double probability = 1;
  int fd = kAnyFile;
};

/// The faults of one backend, drawn from a seed. The first rule that hits decides.
class FaultPlan {
 public:
  explicit FaultPlan(std::uint64_t seed) : random_(seed) {}

  void add(const Fault& fault) { rules_.push_back({fault, 0, 0}); }
  void clear() { rules_.clear(); }

  /// Requests that any rule has hit, since the plan was made.
  std::uint64_t hits() const { return hits_; }

  /// What happens to this request: 0 no fault, kShort, kNothing, or an errno.
  int next(const io::Request& request);
  /// How many bytes a short request moves.
  std::uint32_t shortened(const io::Request& request);

 private:
  struct Rule {
    Fault fault;
    std::uint64_t seen;
    std::uint64_t hits;
  };
  bool chance(double probability);

  std::mt19937_64 random_;
  std::vector<Rule> rules_;
  std::uint64_t hits_ = 0;
};

}  // namespace sluice::sim
