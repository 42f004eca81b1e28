#include "made_store.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>

namespace sluice::tools {
namespace {

void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.to_string(); }

template <class T>
T take(Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return std::move(result).value();
}

}  // namespace

EngineOptions MadeStore::options(std::vector<std::string> directories, std::uint32_t keep_commits) {
  EngineOptions options;
  options.directories = std::move(directories);
  // A scratch store is made for what does not fit alone.
  options.host_budget_bytes = keep_commits == 0 ? 1 << 20 : 4 << 20;
  options.device_budget_bytes = kUnlimited;
  options.chunk_elements = 16 << 10;
  options.keep_commits = keep_commits;
  options.max_user_bytes = 64 << 10;
  options.threads = 1;
  options.seed = 0xfedcba9876543210;
  options.io.backend = IoBackend::kThreads;
  return options;
}

MadeStore::MadeStore(EngineOptions options, Policy matrices, std::shared_ptr<Communicator> communicator,
                     const Optimizer& optimizer)
    : optimizer_(optimizer), communicator_(std::move(communicator)) {
  engine_ = take(Engine::create(std::move(options), take(make_host_device()), communicator_));
  const GroupId trained =
      take(engine_->add_group({.name = "matrices", .policy = matrices, .optimizer = optimizer}));
  const GroupId gains = take(engine_->add_group({.name = "gains", .policy = Policy::kFp32}));
  const GroupId ice = take(engine_->add_group({.name = "ice", .policy = Policy::kFrozen}));
  const GroupId codes =
      take(engine_->add_group({.name = "codes", .policy = Policy::kFrozen, .frozen_dtype = DType::kU8}));
  const DType of_trained = matrices == Policy::kFp32         ? DType::kF32
                           : matrices == Policy::kFp16Master ? DType::kF16
                                                             : DType::kBF16;
  add("embedding", {300, 100}, trained, matrices, of_trained, Normal{.stddev = 0.5F});
  add("gain", {77}, gains, Policy::kFp32, DType::kF32, Constant{1});
  add("scale", {}, gains, Policy::kFp32, DType::kF32, Constant{0.1F});
  add("nothing", {0, 8}, trained, matrices, of_trained, Zeros{});
  add("ice", {50, 33}, ice, Policy::kFrozen, DType::kBF16, Normal{});
  add("codes", {1000}, codes, Policy::kFrozen, DType::kU8,
      InitialCallback([](Range range, DType, void* target) {
        for (std::uint64_t i = 0; i < range.count; ++i)
          static_cast<std::uint8_t*>(target)[i] = static_cast<std::uint8_t>((range.first + i) * 7);
        return Status();
      }));
  add("deep", {40'000}, trained, matrices, of_trained, Normal{.stddev = 2});
  take(engine_->add_alias("head", parameters_.front().id));
  seal_ = take(engine_->seal());
  if (seal_.recovered) steps_ = seal_.recovered->step;
}

void MadeStore::add(const std::string& name, std::vector<std::int64_t> shape, GroupId group, Policy policy,
                    DType weight, Initial initial) {
  std::uint64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<std::uint64_t>(extent);
  const ParameterId id = take(engine_->add_parameter(
      {.name = name, .shape = std::move(shape), .group = group, .initial = std::move(initial)}));
  // The gains' rule is the default one, which has both.
  const bool gains = name == "gain" || name == "scale";
  parameters_.push_back(
      {name, id, elements, weight, policy, gains ? Moments::kBoth : kind_of(optimizer_).moments});
}

void MadeStore::step() {
  ++steps_;
  Pass pass = take(engine_->begin_step({}));
  for (const Parameter& parameter : parameters_) {
    if (parameter.policy == Policy::kFrozen || parameter.elements == 0) continue;
    std::mt19937 random(static_cast<std::uint32_t>(steps_ * 100 + parameter.id.index));
    std::vector<float> gradient(parameter.elements);
    for (float& value : gradient) value = static_cast<float>(random()) * 0x1p-32F - 0.5F;
    const bool contributes = communicator_->rank() == 0;
    expect_ok(
        pass.add_gradient(parameter.id, contributes ? Gradient::f32(gradient.data()) : Gradient::none()));
  }
  take(pass.step());
}

std::uint64_t MadeStore::commit(const std::string& user_bytes) {
  const CommitTicket ticket = take(engine_->commit(std::as_bytes(std::span(user_bytes)), CommitMode::kWait));
  expect_ok(ticket.wait());
  return ticket.number();
}

StateValues MadeStore::state() const {
  StateValues values;
  for (const Parameter& parameter : parameters_) {
    const auto read = [&](const char* view_name, View view, DType dtype) {
      const Range range{0, view == View::kCount ? 1 : parameter.elements};
      std::vector<std::byte>& bytes = values[parameter.name + " " + view_name];
      bytes.resize(range.count * dtype_bytes(dtype));
      expect_ok(engine_->read(parameter.id, view, range, bytes.data(), dtype));
    };
    read("weight", View::kWeight, parameter.weight);
    if (parameter.policy == Policy::kFrozen) continue;
    read("master", View::kMaster, DType::kF32);
    if (parameter.moments != Moments::kSecond) read("moment1", View::kMoment1, DType::kF32);
    if (parameter.moments != Moments::kFirst) read("moment2", View::kMoment2, DType::kF32);
    read("count", View::kCount, DType::kU64);
  }
  return values;
}

void MadeStore::close() { expect_ok(engine_->close()); }

}  // namespace sluice::tools
