#include "sluice/loss_scaler.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace sluice {

LossScaler::LossScaler(Options options)
    : options_(options), scale_(std::max(options.initial_scale, options.floor)) {}

Status LossScaler::restore(const State& state) {
  if (!std::isfinite(state.scale) || state.scale < options_.floor) {
    return Status(Code::kInvalidArgument, "loss scale = " + std::to_string(state.scale) +
                                              ", accepted: finite, >= " + std::to_string(options_.floor));
  }
  scale_ = state.scale;
  good_steps_ = state.good_steps;
  bad_steps_at_floor_ = state.bad_steps_at_floor;
  return {};
}

Status LossScaler::update(Outcome outcome) {
  if (outcome == Outcome::kGood) {
    bad_steps_at_floor_ = 0;
    if (++good_steps_ >= options_.growth_interval) {
      good_steps_ = 0;
      if (std::isfinite(scale_ * options_.growth)) scale_ *= options_.growth;
    }
    return {};
  }
  good_steps_ = 0;
  if (scale_ > options_.floor) {
    scale_ = std::max(scale_ * options_.backoff, options_.floor);
    return {};
  }
  if (++bad_steps_at_floor_ < options_.max_bad_steps_at_floor) return {};
  return Status(Code::kFailedPrecondition,
                "loss scaling: " + std::to_string(bad_steps_at_floor_) +
                    " steps in a row without finite gradients at the smallest scale " +
                    std::to_string(options_.floor));
}

}  // namespace sluice
