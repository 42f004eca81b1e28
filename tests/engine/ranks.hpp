#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/small_engine.hpp"
#include "io/open_backend.hpp"
#include "store/layout.hpp"
#include "support/faulty_backend.hpp"

namespace sluice::sim {

inline constexpr std::uint32_t kRankChunk = 16 << 10;  // elements

/// A real backend behind faults.
class FaultyDrive final : public io::Backend {
 public:
  explicit FaultyDrive(std::unique_ptr<io::Backend> inner) : inner_(std::move(inner)) {}
  FaultPlan& faults() { return faulty_.faults(); }

  std::string_view name() const override { return faulty_.name(); }
  io::BackendLimits limits() const override { return faulty_.limits(); }
  std::int64_t now_ns() const override { return faulty_.now_ns(); }
  io::Request* submit(io::Request* first) override { return faulty_.submit(first); }
  io::Request* reap() override { return faulty_.reap(); }
  void wait(std::int64_t deadline_ns, std::uint32_t events) override { faulty_.wait(deadline_ns, events); }
  void wake() override { faulty_.wake(); }
  Status adopt() override { return faulty_.adopt(); }
  Status register_memory(std::span<const std::span<std::byte>> regions) override {
    return faulty_.register_memory(regions);
  }
  Status register_files(std::span<const int> fds) override { return faulty_.register_files(fds); }
  void unregister() override { faulty_.unregister(); }
  io::BackendUse in_use() const override { return faulty_.in_use(); }

 private:
  const std::unique_ptr<io::Backend> inner_;
  FaultyBackend faulty_{*inner_, 1};
};

struct Tensor {
  std::string name;
  std::uint64_t elements = 0;
  GroupOptions group = {.optimizer = kShowsGradient};
  Residency residency = Residency::kPlanned;
};

/// The state of all tensors, whole, put together from the shards.
/// Shape: [tensor][view][element], and the counts.
struct Whole {
  std::vector<std::array<std::vector<float>, 4>> values;
  std::vector<std::uint64_t> counts;
  friend bool operator==(const Whole&, const Whole&) = default;
};

/// One rank's engine, on a thread of its own.
struct Rank {
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::unique_ptr<Engine> engine;
  std::vector<ParameterId> parameters;
  FaultyDrive* drive = nullptr;

  Pass begin(StepOptions options = {}) {
    Result<Pass> pass = engine->begin_step(options);
    EXPECT_THAT(pass, IsOk());
    return pass.ok() ? std::move(pass).value() : Pass();
  }
  /// This rank's contribution to tensor `at`, or zeros.
  void give(Pass& pass, std::size_t at, const std::vector<float>* values) {
    EXPECT_THAT(pass.add_gradient(parameters[at], values ? Gradient::f32(values->data()) : Gradient::none()),
                IsOk());
  }
  StepResult step(Pass& pass) {
    const Result<StepResult> result = pass.step();
    EXPECT_THAT(result, IsOk());
    return result.ok() ? *result : StepResult{};
  }
  void read_into(Whole& whole, const std::vector<Tensor>& tensors) {
    constexpr View kViews[] = {View::kWeight, View::kMaster, View::kMoment1, View::kMoment2};
    for (std::size_t at = 0; at < tensors.size(); ++at) {
      const Range own = store::shard_of(tensors[at].elements, rank, world);
      const bool frozen = tensors[at].group.policy == Policy::kFrozen;
      const Moments kept = kind_of(tensors[at].group.optimizer).moments;
      for (std::size_t view = 0; view < (frozen ? 1U : 4U); ++view) {
        if (kViews[view] == View::kMoment1 && kept == Moments::kSecond) continue;
        if (kViews[view] == View::kMoment2 && kept == Moments::kFirst) continue;
        EXPECT_THAT(engine->read(parameters[at], kViews[view], own, whole.values[at][view].data() + own.first,
                                 DType::kF32),
                    IsOk());
      }
      if (frozen) continue;
      std::uint64_t count = 0;
      EXPECT_THAT(engine->read(parameters[at], View::kCount, {0, 1}, &count, DType::kU64), IsOk());
      if (rank == 0) whole.counts[at] = count;
    }
  }
};

class RanksTest : public testing::Test {
 protected:
  /// `body` on every rank's thread, each with a sealed engine of its own over the same directory.
  void on_ranks(std::uint32_t world, const std::function<void(Rank&)>& body) {
    on_unsealed(world, [&](Rank& rank) {
      rank.parameters = add_all(*rank.engine);
      const Result<SealReport> report = rank.engine->seal();
      ASSERT_THAT(report, IsOk());
      body(rank);
      EXPECT_THAT(rank.engine->close(), IsOk());
    });
  }

  void on_unsealed(std::uint32_t world, const std::function<void(Rank&)>& body) {
    auto communicators = make_in_process_communicators(world);
    ASSERT_THAT(communicators, IsOk());
    std::vector<std::thread> threads;
    for (std::uint32_t r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        Rank rank{.rank = r, .world = world, .engine = {}, .parameters = {}};
        engine::Parts parts;
        parts.open_backend = [&](const io::BackendOptions& options) { return open_backend(rank, options); };
        // The rank's engine alone holds it: when that is gone the peers hear of it.
        auto made = engine::Access::create(options_for(r), *make_host_device(),
                                           std::move((*communicators)[r]), parts);
        ASSERT_THAT(made, IsOk());
        rank.engine = std::move(made).value();
        body(rank);
      });
    for (std::thread& thread : threads) thread.join();
  }

  virtual EngineOptions options_for(std::uint32_t) { return options_; }
  virtual Result<io::SelectedBackend> open_backend(Rank& rank, const io::BackendOptions& options) {
    Result<io::SelectedBackend> real = io::open_backend(options);
    if (!real.ok()) return real;
    auto drive = std::make_unique<FaultyDrive>(std::move(real->backend));
    rank.drive = drive.get();
    real->backend = std::move(drive);
    return real;
  }

  std::vector<ParameterId> add_all(Engine& engine) const {
    std::vector<ParameterId> parameters;
    for (const Tensor& tensor : tensors_) {
      const Result<GroupId> group = engine.add_group(tensor.group);
      EXPECT_THAT(group, IsOk());
      const auto parameter = engine.add_parameter({.name = tensor.name,
                                                   .shape = {dim(tensor.elements)},
                                                   .group = *group,
                                                   .initial = Normal{},
                                                   .residency = tensor.residency});
      EXPECT_THAT(parameter, IsOk());
      parameters.push_back(parameter.ok() ? *parameter : ParameterId{});
    }
    return parameters;
  }
  Whole make_whole() const {
    Whole whole;
    whole.counts.resize(tensors_.size());
    for (const Tensor& tensor : tensors_) {
      whole.values.emplace_back();
      for (std::vector<float>& view : whole.values.back()) view.resize(tensor.elements);
    }
    return whole;
  }
  static std::vector<float> gradient(const Tensor& tensor, std::uint64_t salt) {
    std::vector<float> values(tensor.elements);
    for (std::uint64_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i + 1) * (salt + 3) * 2654435761 % 100'003) * 1e-5F - 0.5F;
    return values;
  }

  TemporaryDirectory directory_;
  std::vector<Tensor> tensors_{{"scalar", 1},
                               {"small", 10},
                               {"empty", 0},
                               {"medium", 700, {.policy = Policy::kFp32}},
                               {"once", 1000, {.gradient = GradientStorage::kBf16Once}},
                               {"large", 200'000}};
  EngineOptions options_{.directories = {directory_.path()},
                         .host_budget_bytes = kUnlimited,
                         .device_budget_bytes = kUnlimited,
                         .chunk_elements = kRankChunk,
                         .keep_commits = 0,
                         .threads = 1};
};

}  // namespace sluice::sim
