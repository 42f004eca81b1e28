#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/core.hpp"
#include "kernels/tile_hash.hpp"

namespace sluice::engine {
namespace {

/// What one rank knows of the gradients when the ranks decide. Shape: exchanged as bytes.
struct RankGradients {
  kernels::ExactSum::Limbs squares{};
  std::uint64_t nonfinite_granules = 0;
  std::uint64_t contributed = 0;  // hash of which tensors have a gradient
  std::uint64_t numbers = 0;      // hash of the step's
};

std::uint64_t hash_numbers(const StepOptions& options) {
  const std::array<double, 4> numbers{options.max_norm, options.loss_scale, options.gradient_divisor,
                                      static_cast<double>(options.non_finite)};
  return kernels::hash_bytes(numbers.data(), sizeof numbers);
}

}  // namespace

Status Core::check_step(std::uint64_t pass) const {
  if (!training_ || training_->id != pass || ending_)
    return Status(Code::kFailedPrecondition, "step() of a pass that is not a training pass under way");
  if (inner_)
    return Status(Code::kFailedPrecondition, fmt::format("step() while pass {} is not over", inner_->id));
  for (std::uint32_t tensor = 0; tensor < contributions_.size(); ++tensor)
    if (contributions_[tensor].part_open)
      return Status(Code::kFailedPrecondition,
                    fmt::format("step() while a gradient of '{}' is to go on (More::kYes)",
                                state_.registry.tensors()[tensor].name));
  const std::string leases =
      running_->gather->leases_on([this](std::uint32_t tensor) { return !state_.registry.frozen(tensor); });
  if (!leases.empty())
    return Status(Code::kFailedPrecondition, "step() with open leases on what it changes: " + leases);
  return {};
}

Result<kernels::NormDelta> Core::sum_norms(const StepOptions& options) {
  RankGradients own;
  Status status = loop().call([&](Ticket& ticket) {
    own.squares = running_->gradients->norm().squares.limbs();
    own.nonfinite_granules = running_->gradients->norm().nonfinite_granules;
    kernels::Hasher hasher;
    for (std::uint32_t tensor = 0; tensor < contributions_.size(); ++tensor) {
      if (state_.registry.group_of(tensor).options.communicator != communicator_) continue;
      const std::uint8_t any = contributions_[tensor].any();
      hasher.update(&any, 1);
    }
    own.contributed = hasher.digest();
    own.numbers = hash_numbers(options);
    loop().complete(ticket, running_->gradients->failure());
  });
  SLUICE_RETURN_IF_ERROR(agree(*communicator_, std::move(status)));

  std::vector<RankGradients> all(communicator_->world());
  all[communicator_->rank()] = own;
  const GatheredShards shards{reinterpret_cast<std::byte*>(all.data()), sizeof(RankGradients)};
  SLUICE_RETURN_IF_ERROR(communicator_->all_gather({&shards, 1}));
  kernels::NormDelta total;
  for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].numbers != own.numbers)
      return Status(Code::kFailedPrecondition,
                    fmt::format("rank {} gave other step numbers than rank {}", rank, communicator_->rank()));
    if (all[rank].contributed != own.contributed)
      return Status(
          Code::kFailedPrecondition,
          fmt::format("rank {} has gradients for other parameters than rank {}: a rank without one calls "
                      "add_gradient with Gradient::none()",
                      rank, communicator_->rank()));
    total.merge({kernels::ExactSum(all[rank].squares), all[rank].nonfinite_granules});
  }
  return total;
}

Core::Decision Core::decide(const kernels::NormDelta& total, const StepOptions& options) {
  Decision decision;
  const double scale = options.loss_scale * options.gradient_divisor;
  const bool finite = total.nonfinite_granules == 0;
  decision.norm = finite ? std::sqrt(total.squares.value()) / scale : std::numeric_limits<double>::infinity();
  decision.skip = !finite && options.non_finite == NonFinite::kSkipStep;
  const double clip =
      options.max_norm == kNoClipping ? 1.0 : std::min(1.0, options.max_norm / (decision.norm + 1e-6));
  decision.gradient_factor = clip / scale;
  return decision;
}

double Core::unscaling(const StepOptions& options) {
  return 1.0 / (options.loss_scale * options.gradient_divisor);
}

Result<double> Core::norm(std::uint64_t pass) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  StepOptions options;
  Status status = loop().call([&](Ticket& ticket) {
    options = step_options_;
    loop().complete(ticket, training_ && training_->id == pass
                                ? Status()
                                : Status(Code::kFailedPrecondition, "norm() outside a training pass"));
  });
  SLUICE_RETURN_IF_ERROR(agree(*communicator_, std::move(status)));
  const Result<kernels::NormDelta> total = sum_norms(options);
  if (!total.ok()) return total.status();
  return decide(*total, options).norm;
}

Result<StepResult> Core::step(std::uint64_t pass, std::optional<StepOptions> restated) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  const std::int64_t begin_ns = parts_.now_ns();
  StepOptions options;
  bool ending = false;
  Status refused = restated ? check(*restated) : Status();
  if (refused.ok())
    refused = loop().call([&](Ticket& ticket) {
      options = restated ? *restated : step_options_;
      Status checked = check_step(pass);
      if (checked.ok()) ending = ending_ = true;
      loop().complete(ticket, std::move(checked));
    });
  refused = agree(*communicator_, std::move(refused));
  if (!refused.ok()) {
    // Another rank's refusal: the pass goes on here too.
    if (ending)
      SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
        ending_ = false;
        loop().complete(ticket, {});
      }));
    return refused;
  }

  // From here on the pass is over, whatever happens.
  Decision decision;
  const Result<kernels::NormDelta> total = sum_norms(options);
  Status status = total.status();
  if (status.ok()) {
    decision = decide(*total, options);
    status = decision.skip ? loop().call([&](Ticket& ticket) {
      running_->early->skipped();
      loop().complete(ticket, {});
    })
                           : update_state(decision);
  }
  const std::uint64_t step = state_.step;  // as long as this pass is on no other one changes it
  const Outcome outcome = status.ok() ? Outcome::kFinished : Outcome::kAborted;
  const Status dropped = loop().call([&](Ticket& ticket) { drop_pass(pass, outcome, ticket); });
  SLUICE_RETURN_IF_ERROR(status);
  SLUICE_RETURN_IF_ERROR(dropped);
  if (decision.skip) ++state_.counters.skipped_steps;
  state_.counters.step_ns += static_cast<std::uint64_t>(parts_.now_ns() - begin_ns);
  return StepResult{.skipped = decision.skip, .norm = decision.norm, .step = step};
}

Status Core::update_state(const Decision& decision) {
  StepFactors factors;
  Status status = loop().call([&](Ticket& ticket) {
    factors = make_step_factors(decision.gradient_factor);
    running_->gather->pause([&](Status) {
      running_->early->decided(factors, decision.gradient_factor);
      running_->step->stream(factors, [&](Status streamed) { loop().complete(ticket, std::move(streamed)); });
    });
  });
  status = agree(*communicator_, std::move(status));
  if (!status.ok()) {
    SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
      running_->step->discard();
      running_->gather->resume();
      loop().complete(ticket, {});
    }));
    // Without undo some records may be of this step and some of the one before.
    return options_.undo == Undo::kOff ? stick(status.with_context("a step failed with undo off")) : status;
  }
  return loop().call([&](Ticket& ticket) {
    running_->step->keep();
    running_->step->update_resident([&](Status) {
      conclude_step(factors);
      running_->gather->resume();
      loop().complete(ticket, {});
    });
  });
}

StepFactors Core::make_step_factors(double gradient_factor) const {
  StepFactors factors(contributions_.size());
  for (std::uint32_t tensor = 0; tensor < factors.size(); ++tensor)
    if (contributions_[tensor].any()) factors[tensor] = make_factors(state_, tensor, gradient_factor);
  return factors;
}

void Core::conclude_step(const StepFactors& factors) {
  for (std::uint32_t tensor = 0; tensor < factors.size(); ++tensor) {
    if (!factors[tensor]) continue;
    ++state_.registry.tensors()[tensor].step_count;
    running_->gather->invalidate(tensor);
    for (const store::Piece& piece : state_.layout.pieces_of(tensor))
      running_->weights->invalidate(piece.chunk);
  }
  count_overflowed();
  running_->early->conclude();
  std::vector<std::uint32_t> counts(contributions_.size());
  std::ranges::transform(contributions_, counts.begin(), &Contributions::count);
  contribution_counts_->learn(step_options_.micro_batches, counts);
  ++state_.counters.steps;
  ++state_.counters.steps_since_commit;
  ++state_.step;
}

void Core::count_overflowed() {
  std::uint64_t overflowed = 0;
  for (const Chunk& chunk : state_.chunks) overflowed += chunk.overflowed;
  state_.counters.weights_overflowed = overflowed;
}

Result<double> Core::replay_step(StepMode mode, Replayed chunks) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  const std::int64_t begin_ns = parts_.now_ns();
  std::int64_t end_ns = begin_ns;
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    if (training_ || inner_ || state_.counters.steps == 0)
      return loop().complete(ticket,
                             Status(Code::kFailedPrecondition, "a replay needs a finished step and no pass"));
    const auto streamed = [&](Status status) {
      running_->step->discard();
      const auto finished = [&, status](Status) {
        end_ns = parts_.now_ns();
        running_->gradients->drop_all([&, status](Status) { loop().complete(ticket, status); });
      };
      if (mode == StepMode::kComputeOnly && status.ok())
        running_->step->update_resident(finished);
      else
        finished({});
    };
    running_->step->replay(mode, chunks, streamed);
  }));
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

}  // namespace sluice::engine
