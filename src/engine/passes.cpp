#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <utility>

#include "engine/core.hpp"

namespace sluice::engine {
namespace {

Status no_such_pass() { return Status(Code::kFailedPrecondition, "the pass is over"); }

}  // namespace

Status check(const StepOptions& options) {
  const auto refuse = [](std::string_view name, double value, std::string_view accepted) {
    return Status(Code::kInvalidArgument, fmt::format("{} = {}, accepted: {}", name, value, accepted));
  };
  if (!(options.max_norm > 0)) return refuse("max_norm", options.max_norm, "> 0, or kNoClipping");
  if (!(std::isfinite(options.loss_scale) && options.loss_scale > 0))
    return refuse("loss_scale", options.loss_scale, "finite, > 0");
  if (!(std::isfinite(options.gradient_divisor) && options.gradient_divisor > 0))
    return refuse("gradient_divisor", options.gradient_divisor, "finite, > 0");
  return {};
}

Core::ActivePass* Core::find_pass(std::uint64_t pass) {
  if (training_ && training_->id == pass) return &*training_;
  if (inner_ && inner_->id == pass) return &*inner_;
  return nullptr;
}

void Core::follow_innermost() {
  ActivePass* pass = inner_ ? &*inner_ : training_ ? &*training_ : nullptr;
  running_->weights->follow(pass ? &pass->loads : nullptr);
  running_->gradients->follow(training_ ? &training_->gradients : nullptr);
  running_->gather->follow(pass ? &pass->fetches : nullptr);
}

Result<std::uint64_t> Core::begin(std::string_view phase, PassEnd end, const StepOptions* options) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  std::lock_guard no_access(access_mutex_);
  SLUICE_RETURN_IF_ERROR(take_unreported());
  std::uint64_t id = 0;
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    std::optional<ActivePass>& place = options != nullptr ? training_ : inner_;
    if (place || (options != nullptr && inner_))
      return loop().complete(ticket,
                             Status(Code::kFailedPrecondition,
                                    fmt::format("pass {} is not over", place ? place->id : inner_->id)));
    const std::string name = (options != nullptr ? "step:" : "pass:") + std::string(phase);
    id = next_pass_++;
    place.emplace(id, phases_[name], end);
    follow_innermost();
    if (options != nullptr) {
      step_options_ = *options;
      std::ranges::fill(contributions_, Contributions{});
      running_->early->begin(unscaling(*options), contribution_counts_->expected(options->micro_batches));
    }
    loop().complete(ticket, {});
  }));
  return id;
}

Result<std::uint64_t> Core::begin_step(const StepOptions& options) {
  SLUICE_RETURN_IF_ERROR(check(options));
  return begin("", PassEnd::kWeightsChange, &options);
}

Result<std::uint64_t> Core::begin_pass(std::string_view phase) {
  return begin(phase, PassEnd::kWeightsStay, nullptr);
}

void Core::finish_pass(std::uint64_t id, Outcome outcome) {
  std::optional<ActivePass>& place = training_ && training_->id == id ? training_ : inner_;
  if (!place || place->id != id) return;
  if (&place == &training_) ending_ = false;
  // The parts let go of the traces before these are replaced.
  running_->weights->follow(nullptr);
  running_->gradients->follow(nullptr);
  running_->gather->follow(nullptr);
  if (outcome == Outcome::kFinished) {
    place->phase->fetches = place->fetches.recorder.finish();
    place->phase->loads = place->loads.recorder.finish();
    place->phase->gradients = place->gradients.recorder.finish();
  }
  place.reset();
  follow_innermost();
}

Result<std::vector<std::uint32_t>> Core::tensors_of(std::span<const ParameterId> parameters) const {
  std::vector<std::uint32_t> tensors;
  tensors.reserve(parameters.size());
  for (ParameterId parameter : parameters) {
    const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(*tensor);
  }
  // Twice in the list, or tied: one.
  std::ranges::sort(tensors);
  const auto repeated = std::ranges::unique(tensors);
  tensors.erase(repeated.begin(), repeated.end());
  return tensors;
}

void Core::prefetch(std::uint64_t pass, std::span<const ParameterId> parameters) {
  const Call call(*this, Need::kSealed, Hears::kNothing);
  if (!call.ok()) return;
  // In the order in which they will be wanted; what this engine does not know is passed over.
  std::vector<std::uint32_t> tensors;
  for (ParameterId parameter : parameters)
    if (const std::optional<std::uint32_t> tensor = find_tensor(parameter)) tensors.push_back(*tensor);
  loop().post([this, pass, tensors = std::move(tensors)] {
    if (find_pass(pass) != nullptr) running_->gather->prefetch(tensors);
  });
}

Result<std::shared_ptr<LeaseState>> Core::fetch(std::uint64_t pass, std::span<const ParameterId> parameters,
                                                Stream stream) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  SLUICE_RETURN_IF_ERROR(state_.device->wait_for(stream));
  Result<std::vector<std::uint32_t>> tensors = tensors_of(parameters);
  if (!tensors.ok()) return tensors.status();
  const std::int64_t begin_ns = parts_.now_ns();
  std::uint64_t lease = 0;
  Status status = loop().call([&](Ticket& ticket) {
    if (find_pass(pass) == nullptr) return loop().complete(ticket, no_such_pass());
    running_->gather->fetch(pass, *tensors, [this, &ticket, &lease](Status fetched, std::uint64_t id) {
      lease = id;
      loop().complete(ticket, std::move(fetched));
    });
  });
  status = gather_shards(*tensors, std::move(status));
  if (!status.ok() && lease != 0) release(lease, {});
  state_.counters.fetch_wait_ns += static_cast<std::uint64_t>(parts_.now_ns() - begin_ns);
  if (!status.ok()) return status;

  auto state = std::make_shared<LeaseState>();
  state->core = shared_from_this();
  state->lease = lease;
  for (std::uint32_t tensor : *tensors)
    state->views.push_back({tensor, ConstTensor{.data = running_->gather->range(tensor),
                                                .dtype = state_.registry.weight_dtype(tensor),
                                                .location = device_->location(),
                                                .elements = state_.registry.tensors()[tensor].elements}});
  return state;
}

Result<std::vector<std::uint32_t>> Core::agree_on_fetch(const Group& group,
                                                        const std::vector<std::uint32_t>& tensors,
                                                        const Status& local) {
  // A rank's bytes: how it fared, which tensors, and a flag each that it holds all shards already.
  const std::size_t flags = 1 + tensors.size() * sizeof(std::uint32_t);
  const std::size_t bytes = flags + tensors.size();
  std::vector<std::byte> all(group.world * bytes);
  const auto told_by = [&](std::uint32_t rank) { return all.data() + rank * bytes; };
  std::byte* const own = told_by(group.rank);
  own[0] = static_cast<std::byte>(local.code());
  std::memcpy(own + 1, tensors.data(), flags - 1);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    own[flags + i] = std::byte{local.ok() && running_->gather->gathered(tensors[i])};
  const GatheredShards shards{all.data(), bytes};
  SLUICE_RETURN_IF_ERROR(group.options.communicator->all_gather({&shards, 1}));

  if (!local.ok()) return local;
  for (std::uint32_t rank = 0; rank < group.world; ++rank) {
    if (const auto code = static_cast<Code>(told_by(rank)[0]); code != Code::kOk)
      return Status(Code::kAborted, fmt::format("rank {} failed with {}", rank, code_name(code)));
    if (std::memcmp(told_by(rank) + 1, own + 1, flags - 1) != 0)
      return Status(Code::kFailedPrecondition,
                    fmt::format("fetch on rank {} meets one of other parameters on rank {}: calls must come "
                                "in the same order on all ranks",
                                group.rank, rank));
  }
  std::vector<std::uint32_t> missing;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::uint32_t rank = 0; rank < group.world; ++rank)
      if (told_by(rank)[flags + i] == std::byte{0}) {
        missing.push_back(tensors[i]);
        break;
      }
  return missing;
}

Status Core::gather_shards(const std::vector<std::uint32_t>& tensors, Status local) {
  for (const Group& group : state_.registry.groups()) {
    if (group.world == 1) continue;
    std::vector<std::uint32_t> concerned;
    std::ranges::copy_if(tensors, std::back_inserter(concerned),
                         [&](std::uint32_t tensor) { return &state_.registry.group_of(tensor) == &group; });
    if (concerned.empty()) continue;
    // A rank that could not read its own shards takes part in the agreement, so that nobody waits for it.
    const Result<std::vector<std::uint32_t>> missing = agree_on_fetch(group, concerned, local);
    local = missing.status();
    if (!local.ok() || missing->empty()) continue;
    std::vector<GatheredShards> shards;
    for (std::uint32_t tensor : *missing)
      shards.push_back({running_->gather->range(tensor), Gather::range_bytes(state_, tensor) / group.world});
    local = group.options.communicator->all_gather(shards);
    if (!local.ok()) continue;
    for (std::uint32_t tensor : *missing) running_->gather->set_gathered(tensor);
  }
  return local;
}

void Core::release(std::uint64_t lease, Stream) {
  // The host device knows the null stream alone, whose work is over when the lease is dropped.
  const Call call(*this, Need::kOpen, Hears::kNothing);
  if (!call.ok()) return;
  loop().post([this, lease] { running_->gather->release(lease); });
}

Status Core::end(std::uint64_t pass) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  return loop().call([&](Ticket& ticket) {
    const ActivePass* active = find_pass(pass);
    if (active == nullptr) return loop().complete(ticket, no_such_pass());
    if (training_ && active == &*training_)
      return loop().complete(
          ticket, Status(Code::kFailedPrecondition, "end() of a training pass: step() or abort() ends it"));
    if (const std::string leases = running_->gather->open_leases(pass); !leases.empty())
      return loop().complete(ticket, Status(Code::kFailedPrecondition, "end() with open leases: " + leases));
    finish_pass(pass, Outcome::kFinished);
    loop().complete(ticket, {});
  });
}

Status Core::abort(std::uint64_t pass, Hears hears) {
  const Call call(*this, Need::kSealed, hears);
  if (!call.ok()) return call.status();
  return loop().call([&](Ticket& ticket) {
    const ActivePass* active = find_pass(pass);
    // Another thread's step() or abort() may have to wait yet: the pass is over all the same.
    const bool over = active == nullptr || (ending_ && training_ && active == &*training_);
    if (over) return loop().complete(ticket, no_such_pass());
    drop_pass(pass, Outcome::kAborted, ticket);
  });
}

void Core::drop_pass(std::uint64_t pass, Outcome outcome, Ticket& ticket) {
  if (!training_ || training_->id != pass) {
    finish_pass(pass, outcome);
    return loop().complete(ticket, {});
  }
  ending_ = true;
  // No pass begins before nothing of this one is under way.
  drop_step([this, &ticket, pass, outcome](Status) {
    finish_pass(pass, outcome);
    loop().complete(ticket, {});
  });
}

void Core::drop_step(Done done) {
  running_->gradients->follow(nullptr);  // none of them is read ahead any more
  running_->early->drop([this, done = std::move(done)](Status) { running_->gradients->drop_all(done); });
}

}  // namespace sluice::engine
