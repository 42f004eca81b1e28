#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/status.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {

/// How far a run has come and what fixes its way: the trainer's own part of a commit. Batches are drawn by seed and
/// number alone and the learning rate is a function of the step, so the number of steps done is all the position
/// there is. Two runs whose settings agree, of one policy, have the same bytes after the same step. Another policy may go
/// on from a commit, it is not among the settings: from there on its weights are rounded otherwise.
/// Invariant: steps_done() <= the steps that the run was started with.
class Progress {
 public:
  /// Of a run that has not begun to learn `training`.
  Progress(const TrainOptions& options, std::span<const std::uint8_t> training);

  /// Goes on from a commit's user bytes.
  /// Errors, after which nothing has changed: kInvalidArgument naming each setting that differs from this run's, with
  /// both values; kFailedPrecondition for bytes of another program or contradicting ones; kUnimplemented for those of
  /// a newer version.
  Status resume(std::span<const std::byte> user_bytes);

  void add(double loss) { losses_.push_back(loss); }

  std::uint64_t steps_done() const { return losses_.size(); }
  /// Of all steps done, before a resume as well.
  const std::vector<double>& losses() const { return losses_; }

  /// User bytes for a commit: magic, version, each setting, the count of losses and the losses; 8 bytes each,
  /// little-endian.
  std::vector<std::byte> encode() const;
  /// Room for encode() after the last of `steps`, on 64 KiB, so that runs of somewhat more or fewer steps have stores
  /// of the same shape.
  static std::uint64_t room_bytes(std::uint64_t steps);

 private:
  enum class Kind : std::uint8_t { kCount, kNumber, kHash };
  struct Setting {
    std::string_view name;
    Kind kind = Kind::kCount;
    std::uint64_t bits = 0;  // of a double for kNumber
  };
  static constexpr std::size_t kSettings = 13;

  std::array<Setting, kSettings> settings_;
  std::uint64_t steps_;
  std::vector<double> losses_;
};

}  // namespace sluice::trainer
