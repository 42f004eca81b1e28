#include "trainer/training.hpp"

#include <algorithm>

#include "trainer/generate.hpp"
#include "trainer/optimizer_numbers.hpp"

namespace sluice::trainer {
namespace {

constexpr std::size_t kPromptBytes = 32;

}  // namespace

Training::Training(const TrainOptions& options, const SplitText& text, Session& session)
    : options_(options),
      text_(text),
      session_(session),
      model_(options.shape, options.sequences, workspace_),
      batch_(options.sequences, options.shape.context),
      schedule_{.peak = learning_rate(options.optimizer),
                .warmup_steps = options.warmup_steps,
                .steps = options.steps,
                .decline = options.decline,
                .least = options.min_lr} {}

Result<Training::Step> Training::step(std::uint64_t number, double loss_scale) {
  SLUICE_RETURN_IF_ERROR(session_.registry.set_learning_rate(*session_.engine, schedule_.at(number)));
  Result<Pass> pass =
      session_.engine->begin_step({.max_norm = options_.max_norm,
                                   .loss_scale = loss_scale,
                                   .gradient_divisor = static_cast<double>(options_.micro_batches),
                                   .micro_batches = options_.overlap ? options_.micro_batches : 0});
  if (!pass.ok()) return pass.status();
  PassParameters parameters(session_.registry, *pass);
  double total = 0;
  for (std::uint32_t micro_batch = 0; micro_batch < options_.micro_batches; ++micro_batch) {
    const std::uint64_t draw = number * options_.micro_batches + micro_batch;
    const Result<double> loss =
        model_.learn(parameters, batch_.draw(text_.training, options_.seed, draw), loss_scale);
    if (!loss.ok()) return loss.status();
    total += *loss;
  }
  const Result<StepResult> result = pass->step();
  if (!result.ok()) return result.status();
  return Step{total / options_.micro_batches, result->skipped};
}

Status Training::validate(TrainReport& report) {
  const auto text = text_.held_out.first(std::min(options_.validate_bytes, text_.held_out.size()));
  double total = 0;
  std::size_t count = 0;
  for (;;) {
    const Batch batch = batch_.follow(text, count);
    if (batch.inputs.empty()) break;
    const Result<double> loss = forward_loss(batch);
    if (!loss.ok()) return loss.status();
    total += *loss * static_cast<double>(batch.inputs.size());
    count += batch.inputs.size();
  }
  if (count == 0) return {};
  report.validated_bytes = count;
  report.validation_loss = total / static_cast<double>(count);
  report.unigram_entropy = unigram_entropy(text.subspan(1, count));
  return {};
}

Status Training::sample(TrainReport& report) {
  const auto prompt = text_.held_out.first(std::min(kPromptBytes, options_.shape.context));
  const auto text = generate(*session_.engine, session_.registry, model_, options_.shape.context, prompt,
                             {.bytes = options_.sample_bytes, .seed = options_.seed});
  if (!text.ok()) return text.status();
  report.prompt.assign(prompt.begin(), prompt.end());
  report.sample = *text;
  return {};
}

Result<double> Training::forward_loss(const Batch& batch) {
  Result<Pass> pass = session_.engine->begin_pass("validate");
  if (!pass.ok()) return pass.status();
  PassParameters parameters(session_.registry, *pass);
  const Result<double> loss = model_.loss(parameters, batch);
  if (loss.ok()) SLUICE_RETURN_IF_ERROR(pass->end());
  return loss;
}

}  // namespace sluice::trainer
