#include "trainer/trainer.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>

#include <fmt/format.h>

#include "trainer/commits.hpp"
#include "trainer/parallel.hpp"
#include "trainer/progress.hpp"
#include "trainer/session.hpp"
#include "trainer/text.hpp"
#include "trainer/training.hpp"
#include "trainer/xxh3.hpp"

namespace sluice::trainer {
namespace {

using Clock = std::chrono::steady_clock;

Status refuse(std::string_view name, auto value, std::string_view accepted) {
  return Status(Code::kInvalidArgument, fmt::format("{} is {}; accepted: {}", name, value, accepted));
}

Status validate_commits(const TrainOptions& options) {
  if (options.commit_every == 0) {
    if (options.start == Start::kResume) return refuse("commit-every", 0, "1 and more to resume");
    return {};
  }
  if (options.directories.empty())
    return refuse("commit-every", options.commit_every, "0 without a directory to keep commits in");
  if (options.keep_commits < 1 || options.keep_commits > kKeepCommitsMax)
    return refuse("keep-commits", options.keep_commits, fmt::format("1..{}", kKeepCommitsMax));
  if (options.steps > kCommittedStepsMax) {
    return refuse("steps", options.steps, fmt::format("at most {} with commit-every", kCommittedStepsMax));
  }
  return {};
}

Status validate(const TrainOptions& options) {
  SLUICE_RETURN_IF_ERROR(validate(options.shape));
  if (options.steps < 1) return refuse("steps", options.steps, "1 and more");
  if (options.sequences < 1 || options.sequences > 1 << 16)
    return refuse("batch", options.sequences, "1..65536");
  if (options.micro_batches < 1) return refuse("micro-batches", options.micro_batches, "1 and more");
  SLUICE_RETURN_IF_ERROR(sluice::validate(options.optimizer));
  if (options.policy == Policy::kFrozen) return refuse("policy", "frozen", "one that is stepped");
  SLUICE_RETURN_IF_ERROR(sluice::validate(options.policy, options.optimizer));
  if (!(options.min_lr >= 0 && options.min_lr <= 1)) return refuse("min-lr", options.min_lr, "0..1");
  if (!(options.max_norm > 0)) return refuse("max-norm", options.max_norm, "above 0");
  if (const double scale = options.loss_scale.value_or(1); !is_loss_scale(scale))
    return refuse("loss-scale", scale, kLossScales);
  return validate_commits(options);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What the engine went on from, in the trainer's words.
StartReport begin(const SealReport& layout, const Progress& progress, Commits& commits) {
  StartReport start;
  if (!layout.recovered) return start;
  const Recovered& recovered = *layout.recovered;
  commits.recovered(recovered.commit, progress.steps_done());
  start.commit = recovered.commit;
  start.steps_done = progress.steps_done();
  // A commit holds the scheduled rate of its last step; whether the peak is the committed one Progress has checked.
  std::ranges::remove_copy_if(
      recovered.differences, std::back_inserter(start.differences),
      [](const std::string& difference) { return difference.find("': lr = ") != difference.npos; });
  start.rewritten = recovered.rewritten;
  return start;
}

// After `why` the training stops; with commits nothing that was learnt is lost by it, unless the engine failed for good.
Status stop(const Status& why, const Progress& progress, Commits& commits) {
  if (progress.steps_done() == 0) return why;
  Status committed = commits.finish(progress);
  if (!committed.ok())
    committed = commits.finish(progress);  // the first may have told of a commit that was under way
  if (!committed.ok()) {
    return Status(
        why.code(),
        fmt::format("{}; the steps since the last commit are lost: {}", why.message(), committed.message()),
        why.native());
  }
  if (!commits.number()) return why;
  return Status(why.code(),
                fmt::format("{}; steps 1 to {} are in commit {}: resume goes on from there", why.message(),
                            progress.steps_done(), *commits.number()),
                why.native());
}

Status learn(Training& training, const TrainOptions& options, const Engine& engine, Progress& progress,
             Commits& commits, TrainReport& report, const TrainEvents& events) {
  report.stats = engine.stats();
  while (progress.steps_done() < options.steps) {
    const auto start = Clock::now();
    const std::uint64_t number = progress.steps_done();
    const auto failed = [&](const Status& status) {
      return stop(status.with_context(fmt::format("step {}", number + 1)), progress, commits);
    };
    const Result<Training::Step> step = training.step(number, progress.loss_scale());
    if (!step.ok()) return failed(step.status());
    progress.add(step->loss);
    const Status scaled =
        progress.update_scale(step->skipped ? LossScaler::Outcome::kSkipped : LossScaler::Outcome::kGood);
    if (!scaled.ok()) return failed(scaled);
    report.step_seconds.push_back(seconds_since(start));
    report.stats = engine.stats();
    const Status heard =
        events.after_step({number + 1, step->loss, step->skipped, report.step_seconds.back(), report.stats});
    if (!heard.ok()) return stop(heard, progress, commits);
    const Status committing = commits.after_step(progress);
    if (!committing.ok()) return stop(committing, progress, commits);
  }
  SLUICE_RETURN_IF_ERROR(commits.finish(progress));
  if (options.commit_every > 0) report.stats = engine.stats();
  return {};
}

Status run(Training& training, const TrainOptions& options, Session& session, Progress& progress,
           TrainReport& report, const TrainEvents& events) {
  Commits commits(*session.engine, options.commit_every);
  report.start = begin(session.layout, progress, commits);
  if (events.on_start) events.on_start(report.start);
  SLUICE_RETURN_IF_ERROR(learn(training, options, *session.engine, progress, commits, report, events));
  report.losses = progress.losses();
  report.loss_scale = progress.loss_scale();
  report.commit = commits.number();
  if (report.commit) report.user_bytes_xxh3 = xxh3(progress.encode());
  SLUICE_RETURN_IF_ERROR(training.validate(report));
  SLUICE_RETURN_IF_ERROR(training.sample(report));
  SLUICE_ASSIGN_OR_RETURN(report.fingerprint, fingerprint(*session.engine, session.registry));
  return {};
}

}  // namespace

Result<TrainReport> train(const TrainOptions& options, const TrainEvents& events) {
  SLUICE_RETURN_IF_ERROR(validate(options));
  const auto text = read_text(options.text_path);
  if (!text.ok()) return text.status();
  const auto split = split_text(*text, options.shape.context);
  if (!split.ok()) return split.status();
  set_threads(options.gemm_threads);
  Progress progress(options, split->training);
  Result<Session> session = open_session(options, [&](const Recovered& recovered) {
    return progress.resume(recovered.user_bytes).with_context(fmt::format("commit {}", recovered.commit));
  });
  if (!session.ok()) return session.status();

  Training training(options, *split, *session);
  TrainReport report;
  report.bytes_per_step = options.sequences * options.shape.context * options.micro_batches;
  report.layout = session->layout;
  report.host_memory_bytes = session->host_memory_bytes;
  report.device_memory_bytes = session->device_memory_bytes;
  report.trainer_bytes = training.bytes() + text->size();
  report.gemm_threads = static_cast<std::uint32_t>(threads());
  const Status worked = run(training, options, *session, progress, report, events);
  const Status closed = session->engine->close();
  SLUICE_RETURN_IF_ERROR(worked);
  SLUICE_RETURN_IF_ERROR(closed);
  return report;
}

}  // namespace sluice::trainer
