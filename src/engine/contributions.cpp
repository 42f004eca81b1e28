#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/core.hpp"

namespace sluice::engine {
namespace {

kernels::GradientDType kernel_dtype(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return kernels::GradientDType::kBF16;
    case DType::kF16:
      return kernels::GradientDType::kF16;
    default:
      return kernels::GradientDType::kF32;
  }
}

/// What the ranks tell each other of one contribution before its values.
struct Announcement {
  std::uint32_t tensor = 0;
  std::uint8_t none = 0;
  std::uint8_t more = 0;
  DType dtype = DType::kF32;
  std::uint8_t unused = 0;
};
static_assert(sizeof(Announcement) == 8);

}  // namespace

void Core::open_contribution(std::uint64_t pass, std::uint32_t tensor, More more, const Opened& opened) {
  const auto refuse = [&](std::string_view why) {
    opened(Status(Code::kFailedPrecondition,
                  fmt::format("add_gradient('{}'): {}", state_.registry.tensors()[tensor].name, why)));
  };
  if (find_pass(pass) == nullptr) return refuse("the pass is over");
  if (!training_ || training_->id != pass) return refuse("a forward-only pass takes no gradients");
  if (state_.registry.frozen(tensor)) return refuse("the parameter is frozen");
  const Contributions& contributions = contributions_[tensor];
  if (contributions.closed) return refuse("no_more_gradients() was said of it in this step");
  if (state_.registry.group_of(tensor).options.gradient == GradientStorage::kBf16Once) {
    if (more == More::kYes) return refuse("a kBf16Once group takes a contribution whole, not in parts");
    if (contributions.any()) return refuse("a kBf16Once group takes one contribution a step");
  }
  const auto accumulate = contributions.any() ? kernels::Accumulate::kAdd : kernels::Accumulate::kStore;
  running_->early->reopen(tensor, [opened, accumulate] { opened(accumulate); });
}

void Core::add_part(const PartOfGradient& part, Done done) {
  struct Adding {
    std::size_t left = 1;  // one for the loop below, which must not be done in its middle
    Status first_failure = {};
    Done done;
  };
  const auto adding = std::make_shared<Adding>(Adding{.done = std::move(done)});
  const auto finished = [adding](Status status) {
    if (adding->first_failure.ok()) adding->first_failure = std::move(status);
    if (--adding->left == 0) adding->done(std::move(adding->first_failure));
  };
  const auto* source = static_cast<const std::byte*>(part.source);
  for (const Region& region : regions_of(part.tensor, part.range)) {
    ++adding->left;
    running_->gradients->add({.chunk = region.chunk,
                              .offset = region.offset,
                              .count = region.count,
                              .source = source ? source + region.position * dtype_bytes(part.dtype) : nullptr,
                              .dtype = kernel_dtype(part.dtype),
                              .accumulate = part.accumulate},
                             finished);
  }
  finished({});
}

void Core::close_contribution(std::uint32_t tensor, More more) {
  Contributions& contributions = contributions_[tensor];
  contributions.part_open = more == More::kYes;
  if (contributions.part_open) return;
  ++contributions.count;
  // What this rank has alone may settle it: the other ranks' gradients only add to the norm.
  const Decision decision = decide(running_->gradients->norm(), step_options_);
  if (decision.skip || decision.gradient_factor != unscaling(step_options_)) running_->early->stop();
  running_->early->contributed(tensor, contributions.count);
}

Status Core::add_gradient(std::uint64_t pass, ParameterId parameter, const Gradient& gradient,
                          Stream stream) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  SLUICE_RETURN_IF_ERROR(state_.device->wait_for(stream));
  const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
  if (!tensor.ok()) return tensor.status();
  if (gradient.dtype != DType::kF32 && gradient.dtype != DType::kBF16 && gradient.dtype != DType::kF16)
    return Status(Code::kInvalidArgument,
                  fmt::format("gradient of '{}': dtype = {}, accepted: F32, BF16, F16",
                              state_.registry.tensors()[*tensor].name, dtype_name(gradient.dtype)));
  if (gradient.location == Location::kDevice && !state_.device->host_accessible())
    return Status(Code::kUnimplemented, "gradients in memory that the host cannot read");

  const std::int64_t begin_ns = parts_.now_ns();
  const Status status = state_.registry.group_of(*tensor).world > 1
                            ? add_with_other_ranks(pass, *tensor, gradient)
                            : add_alone(pass, *tensor, gradient);
  state_.counters.gradient_wait_ns += static_cast<std::uint64_t>(parts_.now_ns() - begin_ns);
  return status;
}

Status Core::add_alone(std::uint64_t pass, std::uint32_t tensor, const Gradient& gradient) {
  return loop().call([&](Ticket& ticket) {
    open_contribution(pass, tensor, gradient.more, [&](const Result<kernels::Accumulate>& accumulate) {
      if (!accumulate.ok()) return loop().complete(ticket, accumulate.status());
      add_part({.tensor = tensor,
                .range = {0, state_.registry.tensors()[tensor].elements},
                .source = gradient.data,
                .dtype = gradient.dtype,
                .accumulate = *accumulate},
               [&](Status status) {
                 if (status.ok()) close_contribution(tensor, gradient.more);
                 loop().complete(ticket, std::move(status));
               });
    });
  });
}

Status Core::add_with_other_ranks(std::uint64_t pass, std::uint32_t tensor, const Gradient& gradient) {
  auto accumulate = kernels::Accumulate::kAdd;
  Status opened = loop().call([&](Ticket& ticket) {
    open_contribution(pass, tensor, gradient.more, [&](const Result<kernels::Accumulate>& how) {
      if (how.ok()) accumulate = *how;
      loop().complete(ticket, how.status());
    });
  });
  Communicator& communicator = *state_.registry.group_of(tensor).options.communicator;
  SLUICE_RETURN_IF_ERROR(agree(communicator, std::move(opened)));
  SLUICE_RETURN_IF_ERROR(add_from_all_ranks(tensor, gradient, accumulate));
  return loop().call([&](Ticket& ticket) {
    close_contribution(tensor, gradient.more);
    loop().complete(ticket, {});
  });
}

Status Core::add_from_all_ranks(std::uint32_t tensor, const Gradient& gradient,
                                kernels::Accumulate accumulate) {
  const Group& group = state_.registry.group_of(tensor);
  Communicator& communicator = *group.options.communicator;
  const std::uint32_t world = group.world;
  std::vector<Announcement> all(world);
  all[group.rank] = {.tensor = tensor,
                     .none = gradient.data == nullptr,
                     .more = gradient.more == More::kYes,
                     .dtype = gradient.dtype};
  const GatheredShards announcements{reinterpret_cast<std::byte*>(all.data()), sizeof(Announcement)};
  SLUICE_RETURN_IF_ERROR(communicator.all_gather({&announcements, 1}));
  for (std::uint32_t rank = 0; rank < world; ++rank)
    if (all[rank].tensor != tensor || all[rank].more != all[group.rank].more)
      return stick(Status(
          Code::kFailedPrecondition,
          fmt::format(
              "add_gradient('{}') on rank {} meets another call on rank {}: calls must come in the same "
              "order on all ranks",
              state_.registry.tensors()[tensor].name, group.rank, rank)));

  const std::uint64_t elements = state_.registry.tensors()[tensor].elements;
  const std::uint64_t shard = store::shard_elements(elements, world);
  const std::uint64_t block_bytes = kExchangeElements * sizeof(float);
  auto* sum = reinterpret_cast<float*>(running_->exchange.data() + world * block_bytes);
  Status local;
  // A block of every rank's shard at a time bounds the memory; all ranks make as many exchanges as a whole
  // shard needs.
  for (std::uint64_t first = 0; first < shard; first += kExchangeElements) {
    const auto block_of = [&](std::uint32_t rank) {
      const Range range = store::shard_of(elements, rank, world);
      const std::uint64_t begin = std::min(first, range.count);
      return Range{range.first + begin, std::min(kExchangeElements, range.count - begin)};
    };
    const Range block = block_of(group.rank);
    std::vector<std::span<const std::byte>> sends(world);
    std::vector<std::span<std::byte>> receives(world);
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (gradient.data != nullptr) {
        const Range theirs = block_of(rank);
        const std::uint64_t bytes = dtype_bytes(gradient.dtype);
        sends[rank] = {static_cast<const std::byte*>(gradient.data) + theirs.first * bytes,
                       theirs.count * bytes};
      }
      if (all[rank].none == 0)
        receives[rank] = {running_->exchange.data() + rank * block_bytes,
                          block.count * dtype_bytes(all[rank].dtype)};
    }
    SLUICE_RETURN_IF_ERROR(communicator.all_to_all(sends, receives));
    if (block.count == 0) continue;
    auto into_sum = kernels::Accumulate::kStore;
    for (std::uint32_t rank = 0; rank < world; ++rank) {
      if (all[rank].none != 0) continue;
      kernels::accumulate_f32(sum, receives[rank].data(), kernel_dtype(all[rank].dtype), block.count,
                              into_sum, nullptr);
      into_sum = kernels::Accumulate::kAdd;
    }
    const bool zeros = into_sum == kernels::Accumulate::kStore;
    // A failure here must not keep the other ranks waiting: the exchanges go on, the failure is told at the
    // end.
    if (!local.ok()) continue;
    const PartOfGradient part{.tensor = tensor,
                              .range = block,
                              .source = zeros ? nullptr : sum,
                              .dtype = DType::kF32,
                              .accumulate = accumulate};
    local = loop().call([&](Ticket& ticket) {
      add_part(part, [&](Status status) { loop().complete(ticket, std::move(status)); });
    });
  }
  return agree(communicator, std::move(local));
}

Status Core::no_more_gradients(std::uint64_t pass, ParameterId parameter) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
  if (!tensor.ok()) return tensor.status();
  return loop().call([&](Ticket& ticket) {
    if (!training_ || training_->id != pass)
      return loop().complete(
          ticket, Status(Code::kFailedPrecondition, "no_more_gradients() outside a training pass"));
    if (contributions_[*tensor].part_open)
      return loop().complete(
          ticket, Status(Code::kFailedPrecondition,
                         fmt::format("no_more_gradients() while a gradient of '{}' is to go on (More::kYes)",
                                     state_.registry.tensors()[*tensor].name)));
    contributions_[*tensor].closed = true;
    running_->early->closed(*tensor, contributions_[*tensor].count);
    loop().complete(ticket, {});
  });
}

}  // namespace sluice::engine
