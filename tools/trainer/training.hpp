#pragma once

#include <cstdint>

#include "sluice/engine.hpp"
#include "trainer/model.hpp"
#include "trainer/schedule.hpp"
#include "trainer/session.hpp"
#include "trainer/text.hpp"
#include "trainer/trainer.hpp"

namespace sluice::trainer {

/// The model, its text and its engine at work. Lifetime: of the options, the text and the session.
class Training {
 public:
  Training(const TrainOptions& options, const SplitText& text, Session& session);

  /// Of buffers.
  std::uint64_t bytes() const { return workspace_.bytes() + batch_.bytes(); }

  struct Step {
    double loss = 0;  ///< mean over the micro-batches
    bool skipped = false;
  };
  /// One step over all its micro-batches, counted from 0, with gradients of the loss times `loss_scale`.
  Result<Step> step(std::uint64_t number, double loss_scale);

  /// Measures the loss on held-out text.
  Status validate(TrainReport& report);

  /// Goes on from the start of the held-out text.
  Status sample(TrainReport& report);

 private:
  Result<double> forward_loss(const Batch& batch);

  const TrainOptions& options_;
  SplitText text_;
  Session& session_;
  Workspace workspace_;
  Model model_;
  BatchBuffer batch_;
  Schedule schedule_;
};

}  // namespace sluice::trainer
