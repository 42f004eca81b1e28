#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/loss_scaler.hpp"
#include "sluice/status.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {

/// How far a run has come and what fixes its way: the trainer's own part of a commit. Batches are drawn by seed and
/// number alone and the learning rate is a function of the step, so beside the number of steps done a dynamic loss
/// scale is all the position there is. Two runs whose settings agree, of one policy and loss scale, have the same bytes
/// after the same step. Another policy or scaling may go on from a commit, they are not among the settings: from there
/// on numbers are rounded otherwise.
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

  /// What the next step's loss is multiplied by.
  double loss_scale() const { return dynamic_ ? scaler_.scale() : fixed_scale_; }
  /// After a step. Errors: LossScaler's, of a dynamic scale.
  Status update_scale(LossScaler::Outcome outcome) { return dynamic_ ? scaler_.update(outcome) : Status(); }

  std::uint64_t steps_done() const { return losses_.size(); }
  /// Of all steps done, before a resume as well.
  const std::vector<double>& losses() const { return losses_; }

  /// User bytes for a commit, 8 bytes each, little-endian: magic, version 2; the dynamic loss scale, its good and its bad
  /// steps (0, 0, 0 for a fixed one); the count of settings and each; the count of losses and the losses. Version 1
  /// has neither the loss scale nor the count of settings, which are the first 13.
  std::vector<std::byte> encode() const;
  /// Room for encode() after the last of `steps`, on 64 KiB, so that runs of somewhat more or fewer steps have stores
  /// of the same shape.
  static std::uint64_t room_bytes(std::uint64_t steps);

 private:
  enum class Kind : std::uint8_t { kCount, kNumber, kHash, kDecline, kRule };
  struct Setting {
    std::string_view name;
    Kind kind = Kind::kCount;
    std::uint64_t bits = 0;  // of a double for kNumber
  };
  static std::vector<Setting> settings_of(const TrainOptions& options,
                                          std::span<const std::uint8_t> training);
  static std::string text(Kind kind, std::uint64_t bits);
  std::string differences(std::span<const std::uint64_t> committed) const;

  std::vector<Setting> settings_;
  std::uint64_t steps_;
  std::vector<double> losses_;
  bool dynamic_;
  double fixed_scale_;
  LossScaler scaler_;  // where it is dynamic
};

}  // namespace sluice::trainer
