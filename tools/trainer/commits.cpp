#include "trainer/commits.hpp"

#include <vector>

namespace sluice::trainer {

void Commits::recovered(std::uint64_t number, std::uint64_t steps_done) {
  number_ = number;
  steps_done_ = steps_done;
}

Status Commits::commit(const Progress& progress) {
  SLUICE_ASSIGN_OR_RETURN(ticket_, engine_.commit(progress.encode(), CommitMode::kBackground));
  under_way_ = true;
  number_ = ticket_.number();
  steps_done_ = progress.steps_done();
  return {};
}

Status Commits::after_step(const Progress& progress) {
  if (every_ == 0 || progress.steps_done() % every_ != 0) return {};
  return commit(progress);
}

Status Commits::finish(const Progress& progress) {
  if (every_ == 0) return {};
  if (!number_ || steps_done_ != progress.steps_done()) SLUICE_RETURN_IF_ERROR(commit(progress));
  if (!under_way_) return {};
  under_way_ = false;
  const Status held = ticket_.wait();
  if (!held.ok()) number_.reset();
  return held;
}

}  // namespace sluice::trainer
