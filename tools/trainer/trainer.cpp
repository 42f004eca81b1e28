#include "trainer/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <fmt/format.h>

#include "trainer/generate.hpp"
#include "trainer/model.hpp"
#include "trainer/parallel.hpp"
#include "trainer/schedule.hpp"
#include "trainer/session.hpp"
#include "trainer/text.hpp"

namespace sluice::trainer {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPromptBytes = 32;

Status validate(const TrainOptions& options) {
  SLUICE_RETURN_IF_ERROR(validate(options.shape));
  const auto refuse = [](std::string_view name, auto value, std::string_view accepted) {
    return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", name, value, accepted));
  };
  if (options.steps < 1) return refuse("steps", options.steps, "1 and more");
  if (options.sequences < 1 || options.sequences > 1 << 16)
    return refuse("batch", options.sequences, "1..65536");
  if (options.micro_batches < 1) return refuse("micro-batches", options.micro_batches, "1 and more");
  if (!std::isfinite(options.lr) || options.lr < 0)
    return refuse("lr", options.lr, "finite and not negative");
  if (options.policy == Policy::kFrozen) return refuse("policy", "frozen", "bf16_split, fp32");
  return {};
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The model, its text and its engine at work.
class Training {
 public:
  Training(const TrainOptions& options, const SplitText& text, Session& session)
      : options_(options),
        text_(text),
        session_(session),
        model_(options.shape, options.sequences, workspace_),
        batch_(options.sequences, options.shape.context),
        schedule_{options.lr, options.warmup_steps, options.steps} {}

  std::uint64_t bytes() const { return workspace_.bytes() + batch_.bytes(); }

  /// One step over all its micro-batches. Returns their mean loss.
  Result<double> step(std::uint64_t number) {
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

  Status validate(TrainReport& report) {
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

  Status sample(TrainReport& report) {
    const auto prompt = text_.held_out.first(std::min(kPromptBytes, options_.shape.context));
    const auto text = generate(*session_.engine, session_.registry, model_, options_.shape.context, prompt,
                               {.bytes = options_.sample_bytes, .seed = options_.seed});
    if (!text.ok()) return text.status();
    report.prompt.assign(prompt.begin(), prompt.end());
    report.sample = *text;
    return {};
  }

 private:
  Result<double> forward_loss(const Batch& batch) {
    Result<Pass> pass = session_.engine->begin_pass("validate");
    if (!pass.ok()) return pass.status();
    PassParameters parameters(session_.registry, *pass);
    const Result<double> loss = model_.loss(parameters, batch);
    if (loss.ok()) SLUICE_RETURN_IF_ERROR(pass->end());
    return loss;
  }

  const TrainOptions& options_;
  SplitText text_;
  Session& session_;
  Workspace workspace_;
  Model model_;
  BatchBuffer batch_;
  Schedule schedule_;
};

Status run(Training& training, const TrainOptions& options, Session& session, TrainReport& report,
           const std::function<Status(const StepReport&)>& after_step) {
  for (std::uint64_t number = 0; number < options.steps; ++number) {
    const auto start = Clock::now();
    const Result<double> loss = training.step(number);
    if (!loss.ok()) return loss.status().with_context(fmt::format("step {}", number + 1));
    report.losses.push_back(*loss);
    report.step_seconds.push_back(seconds_since(start));
    report.stats = session.engine->stats();
    SLUICE_RETURN_IF_ERROR(after_step({number + 1, *loss, report.step_seconds.back(), report.stats}));
  }
  SLUICE_RETURN_IF_ERROR(training.validate(report));
  SLUICE_RETURN_IF_ERROR(training.sample(report));
  const Result<Fingerprint> bits = fingerprint(*session.engine, session.registry);
  if (!bits.ok()) return bits.status();
  report.fingerprint = *bits;
  return {};
}

}  // namespace

std::uint64_t state_bytes(const Shape& shape) { return 12 * parameter_count(shape); }

Result<TrainReport> train(const TrainOptions& options,
                          const std::function<Status(const StepReport&)>& after_step) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  const auto text = read_text(options.text_path);
  if (!text.ok()) return text.status();
  const auto split = split_text(*text, options.shape.context);
  if (!split.ok()) return split.status();
  set_threads(options.gemm_threads);
  Result<Session> session = open_session(options);
  if (!session.ok()) return session.status();

  Training training(options, *split, *session);
  TrainReport report;
  report.bytes_per_step = options.sequences * options.shape.context * options.micro_batches;
  report.layout = session->layout;
  report.host_memory_bytes = session->host_memory_bytes;
  report.device_memory_bytes = session->device_memory_bytes;
  report.trainer_bytes = training.bytes() + text->size();
  report.gemm_threads = static_cast<std::uint32_t>(threads());
  const Status worked = run(training, options, *session, report, after_step);
  const Status closed = session->engine->close();
  SLUICE_RETURN_IF_ERROR(worked);
  SLUICE_RETURN_IF_ERROR(closed);
  return report;
}

}  // namespace sluice::trainer
