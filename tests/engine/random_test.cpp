#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "engine/plain_model.hpp"
#include "engine/sim_engine.hpp"
#include "io/drive_profile.hpp"
#include "kernels/convert.hpp"

namespace sluice {
namespace {

using sim::PlainModel;
using sim::PlainTensor;

/// One life of an engine, drawn from a seed: a model, budgets, passes with fetches, gradients, surprises and
/// steps.
class Life {
 public:
  explicit Life(std::uint64_t seed) : house_(seed), random_(seed ^ 0x5eed) {}

  void run() {
    make_model();
    open();
    if (testing::Test::HasFatalFailure()) return;
    const std::uint64_t passes = 2 + below(4);
    for (std::uint64_t pass = 0; pass < passes && !testing::Test::HasFailure(); ++pass) {
      train();
      if (chance(0.3)) evaluate();
      if (chance(0.3)) write_something();
      if (chance(0.5)) {
        EXPECT_EQ(compare(*engine_, model_, parameters_), "");
      }
    }
    EXPECT_EQ(compare(*engine_, model_, parameters_), "");
    const Status closed = engine_->close();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
    for (const auto& entry : std::filesystem::recursive_directory_iterator(house_.directory.path()))
      EXPECT_TRUE(entry.path().filename() == io::kProfileName ||
                  entry.path().parent_path() == house_.directory.path())
          << entry.path() << " of a scratch store was left behind";
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(double probability) { return static_cast<double>(random_() >> 11) * 0x1p-53 < probability; }

  void make_model() {
    constexpr std::array<std::uint64_t, 12> kSizes{0,    1,     10,    255,   256,   257,
                                                   1000, 16384, 16385, 20000, 40000, 70000};
    const std::uint64_t tensors = 1 + below(8);
    for (std::uint64_t i = 0; i < tensors; ++i) {
      const Policy policy = chance(0.15) ? Policy::kFrozen : chance(0.3) ? Policy::kFp32 : Policy::kBf16Split;
      const GradientStorage storage = chance(0.25) ? GradientStorage::kBf16Once : GradientStorage::kFp32;
      model_.add(fmt::format("t{}", i), kSizes[below(kSizes.size())], policy, storage,
                 AdamW{.lr = chance(0.1) ? 0.0 : 1e-2, .weight_decay = chance(0.5) ? 0.1 : 0.0});
    }
    for (const PlainTensor& tensor : model_.tensors) {
      largest_ =
          std::max(largest_, (tensor.elements + 255) / 256 * 256 * (tensor.policy == Policy::kFp32 ? 4 : 2));
      all_ += (tensor.elements + 255) / 256 * 256 * (tensor.policy == Policy::kFp32 ? 4 : 2);
    }
  }

  /// One to three, which may take unequal shares.
  std::vector<std::string> make_drives() {
    std::vector<std::string> drives;
    const bool measured = chance(0.5);
    for (std::uint64_t drive = 0, count = 1 + below(3); drive < count; ++drive) {
      drives.push_back(fmt::format("{}/drive-{}", house_.directory.path(), drive));
      std::filesystem::create_directory(drives.back());
      const io::DriveProfile profile{
          .settings = {.piece_bytes = 4096U << below(8), .depth = 1 + static_cast<std::uint32_t>(below(32))},
          .mixed_bytes_per_s = static_cast<double>(1 + below(10)) * 1e8,
          .measured_by = "probe",
          .measured_on = "2026-11-30"};
      if (!measured) continue;
      const Result<io::Directory> directory = io::Directory::open(drives.back(), io::Access::kReadWrite);
      EXPECT_TRUE(directory.ok() && io::save_profile(*directory, profile).ok());
    }
    return drives;
  }

  void open() {
    EngineOptions options;
    options.keep_commits = 0;
    options.chunk_elements = 16 << 10;
    options.directories = make_drives();
    options.host_budget_bytes = kUnlimited;
    options.device_budget_bytes = kUnlimited;
    options.undo = chance(0.8) ? Undo::kOn : Undo::kOff;
    if (chance(0.5)) options.io.piece_bytes = 4096U << below(8);
    {
      // What everything would need tells the least and the most.
      Result<std::unique_ptr<Engine>> probe = house_.make_engine(options);
      ASSERT_TRUE(probe.ok()) << probe.status().to_string();
      ASSERT_TRUE(register_with(**probe, model_).ok());
      const Result<SealReport> report = (*probe)->seal();
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      options.host_budget_bytes =
          std::max<std::uint64_t>(report->least_host_bytes + below(report->host_bytes + 1), 1);
      if (chance(0.3)) options.host_budget_bytes = std::max<std::uint64_t>(report->least_host_bytes, 1);
    }
    options.max_fetch_bytes = largest_ + below(all_ - largest_ + 1);
    options.device_budget_bytes = std::max<std::uint64_t>(options.max_fetch_bytes + below(all_ + 1), 1);
    max_fetch_ = options.max_fetch_bytes;
    if (options.undo == Undo::kOn && chance(0.5)) {
      house_.faults.push_back({.op = io::Op::kRead, .error = EINTR, .probability = 0.1});
      house_.faults.push_back({.op = io::Op::kWrite, .error = EAGAIN, .probability = 0.1});
      house_.faults.push_back({.op = io::Op::kRead, .error = sim::Fault::kShort, .probability = 0.2});
      house_.faults.push_back({.op = io::Op::kWrite, .error = sim::Fault::kShort, .probability = 0.2});
    }
    Result<std::unique_ptr<Engine>> engine = house_.make_engine(options);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    engine_ = std::move(engine).value();
    Result<std::vector<ParameterId>> parameters = register_with(*engine_, model_);
    ASSERT_TRUE(parameters.ok()) << parameters.status().to_string();
    parameters_ = *parameters;
    const Result<SealReport> report = engine_->seal();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    EXPECT_LE(report->host_bytes, options.host_budget_bytes);
  }

  std::uint64_t device_bytes(std::uint32_t tensor) const {
    const PlainTensor& of = model_.tensors[tensor];
    return (of.elements + 255) / 256 * 256 * (of.policy == Policy::kFp32 ? 4 : 2);
  }

  /// Fetches a few tensors together and compares every byte with the plain arrays.
  Lease fetch_some(Pass& pass, std::uint64_t room_bytes) {
    std::vector<ParameterId> wanted;
    std::vector<std::uint32_t> tensors;
    std::uint64_t bytes = 0;
    for (std::uint64_t i = 0; i < 1 + below(3); ++i) {
      const auto tensor = static_cast<std::uint32_t>(below(parameters_.size()));
      if (bytes + device_bytes(tensor) > room_bytes) break;
      bytes += device_bytes(tensor);
      wanted.push_back(parameters_[tensor]);
      tensors.push_back(tensor);
      if (chance(0.1)) wanted.push_back(parameters_[tensor]);
    }
    if (chance(0.2)) pass.prefetch(wanted);
    Result<Lease> lease = pass.fetch(wanted);
    EXPECT_TRUE(lease.ok()) << lease.status().to_string();
    if (!lease.ok()) return {};
    for (std::uint32_t tensor : tensors) {
      const ConstTensor got = (*lease)[parameters_[tensor]];
      EXPECT_EQ(got.elements, model_.tensors[tensor].elements);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.data) % 256, 0U);
      EXPECT_EQ(sim::differing_bytes(got.data, model_.tensors[tensor].weights(),
                                     model_.tensors[tensor].weight_bytes()),
                0)
          << "weights of " << model_.tensors[tensor].name;
    }
    return std::move(lease).value();
  }

  void contribute(Pass& pass, std::uint32_t tensor) {
    PlainTensor& of = model_.tensors[tensor];
    std::vector<float> values(of.elements);
    const float scale = chance(0.05) ? 1e-25f : 1.0f;
    for (float& value : values) value = scale * (static_cast<float>(random_() >> 40) * 0x1p-23f - 1.0f);
    if (poisoned_ && !values.empty()) {
      values[below(values.size())] = chance(0.5) ? INFINITY : NAN;
      poisoned_ = false;
    }
    Gradient gradient = Gradient::f32(values.data());
    std::vector<std::uint16_t> rounded(of.elements);
    if (chance(0.3)) {
      kernels::f32_to_bf16(rounded.data(), values.data(), of.elements);
      gradient = Gradient::bf16(rounded.data());
    }
    model_.add_gradient(tensor, gradient.data, gradient.dtype);
    const Status status = pass.add_gradient(parameters_[tensor], gradient);
    EXPECT_TRUE(status.ok()) << status.to_string();
  }

  void train() {
    StepOptions options{.max_norm = chance(0.5) ? 0.5 : kNoClipping,
                        .loss_scale = chance(0.5) ? 1024.0 : 1.0,
                        .micro_batches = 1 + static_cast<std::uint32_t>(below(3))};
    options.gradient_divisor = options.micro_batches;
    Result<Pass> pass = engine_->begin_step(options);
    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
    for (std::uint32_t micro = 0; micro < options.micro_batches; ++micro) {
      for (std::uint32_t i = 0; i < parameters_.size(); ++i) {
        const Lease held = fetch_some(*pass, max_fetch_);
        if (chance(0.2)) (void)fetch_some(*pass, 0);
      }
      if (chance(0.15)) evaluate();
      for (std::uint32_t back = 0; back < parameters_.size(); ++back) {
        const auto tensor = static_cast<std::uint32_t>(parameters_.size() - 1 - back);
        if (model_.tensors[tensor].policy == Policy::kFrozen || chance(0.15)) continue;
        if (model_.tensors[tensor].storage == GradientStorage::kBf16Once &&
            model_.tensors[tensor].contributed)
          continue;
        if (chance(0.05)) poisoned_ = true;
        contribute(*pass, tensor);
      }
    }
    poisoned_ = false;
    if (chance(0.1)) {
      EXPECT_TRUE(pass->abort().ok());
      model_.abort();
      return;
    }
    const Result<StepResult> result = pass->step();
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    const StepResult expected = model_.step(options);
    EXPECT_EQ(result->skipped, expected.skipped);
    EXPECT_EQ(result->norm, expected.norm);
    EXPECT_EQ(result->step, expected.step);
  }

  void evaluate() {
    Result<Pass> pass = engine_->begin_pass("evaluate");
    ASSERT_TRUE(pass.ok()) << pass.status().to_string();
    for (std::uint64_t i = 0; i < below(4); ++i) (void)fetch_some(*pass, max_fetch_);
    const Status ended = pass->end();
    EXPECT_TRUE(ended.ok()) << ended.to_string();
  }

  void write_something() {
    const auto tensor = static_cast<std::uint32_t>(below(parameters_.size()));
    PlainTensor& of = model_.tensors[tensor];
    if (of.policy != Policy::kBf16Split || of.elements == 0) return;
    const std::uint64_t first = below(of.elements);
    const std::uint64_t count = 1 + below(of.elements - first);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random_() >> 40) * 0x1p-22f;
    const Status status =
        engine_->write(parameters_[tensor], View::kMaster, {first, count}, values.data(), DType::kF32);
    EXPECT_TRUE(status.ok()) << status.to_string();
    kernels::split_bf16(of.weight16.data() + first, of.residual.data() + first, values.data(), count);
  }

  sim::SimHouse house_;
  std::mt19937_64 random_;
  PlainModel model_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> parameters_;
  std::uint64_t largest_ = 0, all_ = 0, max_fetch_ = 0;
  bool poisoned_ = false;
};

class RandomLives : public testing::TestWithParam<int> {};

// Ten lives a case, so that ctest spreads the two hundred over its jobs.
TEST_P(RandomLives, EqualPlainArraysBitForBit) {
  for (std::uint64_t life = 0; life < 10; ++life) {
    const std::uint64_t seed = sim::seed_or(static_cast<std::uint64_t>(GetParam()) * 10 + life);
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    Life(seed).run();
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomLives, testing::Range(0, 20));

}  // namespace
}  // namespace sluice
