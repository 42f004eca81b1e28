#include "tools/train_progress.hpp"

#include <unistd.h>

#include <iostream>

#include <fmt/format.h>

namespace sluice::tools {
namespace {

constexpr double kTerminalPause_s = 0.2;
constexpr double kLogPause_s = 5;

double seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

std::uint64_t bytes_read(const Stats& stats) {
  return stats.weight_bytes_read + stats.record_bytes_read + stats.gradient_bytes_read;
}
std::uint64_t bytes_written(const Stats& stats) {
  return stats.record_bytes_written + stats.gradient_bytes_written + stats.commit_state_bytes_written +
         stats.commit_record_bytes_written;
}
double stalled_s(const Stats& stats) { return stats.fetch_wait_seconds + stats.gradient_wait_seconds; }

}  // namespace

TrainProgress::TrainProgress(std::uint64_t steps, std::uint64_t bytes_per_step)
    : steps_(steps), bytes_per_step_(bytes_per_step), on_terminal_(isatty(STDERR_FILENO) == 1) {}

void TrainProgress::start(std::uint64_t steps_done) {
  start_ = last_time_ = Clock::now();
  first_step_ = last_step_ = steps_done;
}

void TrainProgress::report(const trainer::StepReport& step) {
  const Clock::time_point now = Clock::now();
  const double passed = seconds(now - last_time_);
  const bool last = step.step == steps_;
  if (!last && step.step > first_step_ + 1 && passed < (on_terminal_ ? kTerminalPause_s : kLogPause_s))
    return;
  const auto per_second = [&](std::uint64_t after, std::uint64_t before) {
    return static_cast<double>(after - before) / passed;
  };
  const double left_s = seconds(now - start_) / static_cast<double>(step.step - first_step_) *
                        static_cast<double>(steps_ - step.step);
  const auto left = static_cast<std::uint64_t>(left_s);
  std::cerr << fmt::format(
                   "{}{}/{}  loss {:.3f}{}  {:.0f} tokens/s  in {:.2f} out {:.2f} GB/s  stalled {:.0f}%  "
                   "{}:{:02} left{}",
                   on_terminal_ ? "\r\033[K" : "", step.step, steps_, step.loss,
                   step.stats.skipped_steps > 0 ? fmt::format("  skipped {}", step.stats.skipped_steps) : "",
                   per_second(step.step, last_step_) * static_cast<double>(bytes_per_step_),
                   per_second(bytes_read(step.stats), bytes_read(last_stats_)) / 1e9,
                   per_second(bytes_written(step.stats), bytes_written(last_stats_)) / 1e9,
                   100 * (stalled_s(step.stats) - stalled_s(last_stats_)) / passed, left / 60, left % 60,
                   on_terminal_ && !last ? "" : "\n")
            << std::flush;
  last_time_ = now;
  last_step_ = step.step;
  last_stats_ = step.stats;
}

}  // namespace sluice::tools
