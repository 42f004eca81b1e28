#include "trainer/training.hpp"

#include <algorithm>

#include "trainer/generate.hpp"

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
      schedule_{options.lr, options.warmup_steps, options.steps} {}

Result<double> Training::step(std::uint64_t number) {
  SLUICE_RETURN_IF_ERROR(session_.registry.set_learning_rate(*session_.engine, schedule_.at(number)));
  Result<Pass> pass =
      session_.engine->begin_step({.max_norm = options_.max_norm,
                                   .gradient_divisor = static_cast<double>(options_.micro_batches),
                                   .micro_batches = options_.micro_batches});
  if (!pass.ok()) return pass.status();
  PassParameters parameters(session_.registry, *pass);
  double total = 0;
  for (std::uint32_t micro_batch = 0; micro_batch < options_.micro_batches; ++micro_batch) {
    const std::uint64_t draw = number * options_.micro_batches + micro_batch;
    const Result<double> loss = model_.learn(parameters, batch_.draw(text_.training, options_.seed, draw));
    if (!loss.ok()) return loss.status();
    total += *loss;
  }
  const Result<StepResult> result = pass->step();
  if (!result.ok()) return result.status();
  return total / options_.micro_batches;
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
