#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "engine/training.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::PlainTensor;
using testing::AllOf;
using testing::HasSubstr;

constexpr off_t kGridBytes = 4096;
constexpr std::size_t kChunk = 16384;  // elements

/// Open files of this process whose path holds `part`, as paths that reach them even without a name.
std::vector<std::string> open_files(const std::string& part) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.find(part) != std::string::npos) found.push_back(entry.path().string());
  }
  return found;
}

/// Flips the lowest bit of byte `at` in every place of the file, on the grid, where the whole of `plane` lies,
/// but for that bit.
/// Returns: how many places that were.
int flip(const std::string& path, const void* plane, std::size_t plane_bytes, std::size_t at) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return 0;
  int places = 0;
  const auto* expected = static_cast<const char*>(plane);
  std::vector<char> found(plane_bytes);
  const auto length = static_cast<ssize_t>(plane_bytes);
  for (off_t offset = 0; ::pread(fd, found.data(), plane_bytes, offset) == length; offset += kGridBytes) {
    char byte = static_cast<char>(found[at] ^ 1);
    if ((found[at] ^ expected[at]) & ~1) continue;
    found[at] = expected[at];
    if (std::memcmp(found.data(), plane, plane_bytes) != 0) continue;
    places += ::pwrite(fd, &byte, 1, offset + static_cast<off_t>(at)) == 1;
  }
  // The engine reads past the page cache.
  EXPECT_EQ(::fsync(fd), 0);
  ::close(fd);
  return places;
}

/// An engine over real files at its least budgets, one step old, so that no plane is all zeros.
class Corruption : public testing::Test {
 protected:
  void SetUp() override {
    EngineOptions& options = options_;
    options.directories = {directory_.path()};
    options.chunk_elements = kChunk;
    options.keep_commits = 0;
    options.io.backend = IoBackend::kThreads;
    Result<EngineOptions> least = sim::least_budgets(options, training_.model);
    ASSERT_TRUE(least.ok()) << least.status().to_string();
    options = *least;
    const Status opened = training_.open(options);
    ASSERT_TRUE(opened.ok()) << opened.to_string();
    ASSERT_EQ(training_.report.resident_chunks, 0U);
    const Status trained = training_.train(0, step_options_);
    ASSERT_TRUE(trained.ok()) << trained.to_string();
    step_model(training_.model, 0, step_options_);
    ASSERT_EQ(training_.difference(), "");
  }

  void flip_in_container(const void* plane, std::size_t plane_bytes, std::size_t at) {
    const std::vector<std::string> files = open_files("/data");
    ASSERT_EQ(files.size(), 1U);
    ASSERT_GT(flip(files[0], plane, plane_bytes, at), 0) << "the plane is not in the container";
  }

  /// A training pass that goes as far as it can.
  /// Returns: the first failure of a gradient or the step.
  Status step_without_fetches() {
    Result<Pass> pass = training_.engine->begin_step(step_options_);
    SLUICE_RETURN_IF_ERROR(pass.status());
    for (std::size_t tensor = 0; tensor < training_.parameters.size(); ++tensor)
      if (contributes(training_.model.tensors[tensor], 0))
        SLUICE_RETURN_IF_ERROR(training_.add_gradient(*pass, 1, 0, tensor));
    return pass->step().status();
  }

  Status read(std::size_t tensor, View view) {
    std::vector<float> values(training_.model.tensors[tensor].elements);
    return training_.engine->read(training_.parameters[tensor], view, {0, values.size()}, values.data(),
                                  DType::kF32);
  }

  /// What tells of a flipped bit in state of `parameter`.
  static void expect_told(const Status& status, const std::string& parameter, const std::string& doing) {
    EXPECT_EQ(status.code(), Code::kDataLoss) << doing << ": " << status.to_string();
    EXPECT_THAT(status.message(), AllOf(HasSubstr("'" + parameter + "'"), HasSubstr("checksum"))) << doing;
  }

  sim::TemporaryDirectory directory_;
  EngineOptions options_;
  sim::Training training_;
  const StepOptions step_options_{.micro_batches = 1};
};

TEST_F(Corruption, OfAWeightIsFoundByFetchAndStepAndReadAndHarmsNoOther) {
  const PlainTensor& alpha = training_.model.tensors[0];
  // The last element of the first chunk.
  flip_in_container(alpha.weight16.data(), kChunk * 2, kChunk * 2 - 1);
  {
    Result<Pass> pass = training_.engine->begin_pass("evaluate");
    ASSERT_TRUE(pass.ok());
    for (int again = 0; again < 2; ++again) expect_told(training_.fetch(*pass, 0), "alpha", "fetch");
    for (std::size_t other = 1; other < training_.parameters.size(); ++other) {
      const Status fetched = training_.fetch(*pass, other);
      EXPECT_TRUE(fetched.ok()) << fetched.to_string();
    }
    EXPECT_TRUE(pass->end().ok());
  }
  expect_told(step_without_fetches(), "alpha", "step");
  expect_told(read(0, View::kWeight), "alpha", "read");
  expect_told(read(0, View::kMaster), "alpha", "read");
  EXPECT_TRUE(read(1, View::kMaster).ok());
  EXPECT_TRUE(training_.engine->close().ok());
}

TEST_F(Corruption, OfAnyOtherPlaneIsFoundByStepAndRead) {
  struct Planes {
    const char* name;
    std::size_t tensor;
    const void* data;
    std::size_t bytes;
    View view;
  };
  const PlainTensor& alpha = training_.model.tensors[0];
  const PlainTensor& beta = training_.model.tensors[1];
  const PlainTensor& gamma = training_.model.tensors[2];
  const Planes all[] = {
      {"residual of alpha", 0, alpha.residual.data(), kChunk * 2, View::kMaster},
      {"moment1 of beta", 1, beta.moment1.data(), kChunk * 4, View::kMoment1},
      {"moment2 of gamma", 2, gamma.moment2.data(), kChunk * 4, View::kMoment2},
  };
  for (const Planes& plane : all) {
    SCOPED_TRACE(plane.name);
    const std::string parameter = training_.model.tensors[plane.tensor].name;
    ASSERT_NO_FATAL_FAILURE(flip_in_container(plane.data, plane.bytes, plane.bytes / 2));
    expect_told(step_without_fetches(), parameter, "step");
    expect_told(read(plane.tensor, plane.view), parameter, "read");
    // The weights are whole, and so is what does not look at the plane.
    EXPECT_TRUE(read(plane.tensor, View::kWeight).ok());
    // Back again: the failed step has changed nothing else.
    ASSERT_NO_FATAL_FAILURE(flip_in_container(plane.data, plane.bytes, plane.bytes / 2));
    EXPECT_EQ(training_.difference(), "");
  }
  ASSERT_TRUE(training_.train(1, step_options_).ok());
  step_model(training_.model, 1, step_options_);
  EXPECT_EQ(training_.run(0, step_options_), "");
}

TEST_F(Corruption, ByAFileTruncatedUnderneathIsAnErrorThatNamesIt) {
  const std::vector<std::string> files = open_files("/data");
  ASSERT_EQ(files.size(), 1U);
  ASSERT_EQ(::truncate(files[0].c_str(), 64 << 10), 0);
  {
    Result<Pass> pass = training_.engine->begin_pass("evaluate");
    ASSERT_TRUE(pass.ok());
    for (std::size_t tensor = 0; tensor < training_.parameters.size(); ++tensor) {
      const Status fetched = training_.fetch(*pass, tensor);
      if (fetched.ok()) continue;  // from a host or device frame, which is as good as before
      EXPECT_EQ(fetched.code(), Code::kDataLoss) << fetched.to_string();
      EXPECT_THAT(fetched.message(),
                  AllOf(HasSubstr("'" + training_.model.tensors[tensor].name + "'"), HasSubstr("/data")));
    }
    EXPECT_TRUE(pass->end().ok());
  }
  EXPECT_EQ(read(0, View::kMaster).code(), Code::kDataLoss);
  EXPECT_EQ(step_without_fetches().code(), Code::kDataLoss);
  EXPECT_TRUE(training_.engine->close().ok());
}

TEST_F(Corruption, OfASpilledGradientEndsTheStepAndNothingElse) {
  // Without a finished step there is no trace, so nothing is read back before it is asked for.
  training_.model = sim::small_model();
  ASSERT_TRUE(training_.open(options_).ok());
  for (const bool accumulate : {false, true}) {
    SCOPED_TRACE(accumulate ? "found by a second contribution" : "found by the step");
    Result<Pass> pass = training_.engine->begin_step({.micro_batches = accumulate ? 2U : 1U});
    ASSERT_TRUE(pass.ok());
    // There are fewer frames than chunks: some of these are spilled by the time the last is taken.
    for (std::size_t tensor : {0, 1, 2}) ASSERT_TRUE(training_.add_gradient(*pass, 1, 0, tensor).ok());
    const std::vector<std::string> files = open_files("/gradients");
    ASSERT_EQ(files.size(), 1U);
    int flipped = 0;
    // A spill may be on its way still: only planes that are there as a whole count.
    for (int tries = 0; flipped == 0 && tries < 10'000; ++tries)
      for (std::size_t tensor : {0, 1}) {
        const std::vector<float> values =
            sim::gradient_values(1, 0, tensor, training_.model.tensors[tensor].elements);
        flipped += flip(files[0], values.data(), kChunk * 4, kChunk * 3);
      }
    ASSERT_GT(flipped, 0) << "nothing was spilled";
    Status told;
    if (accumulate)
      for (std::size_t tensor = 0; told.ok() && tensor < 2; ++tensor)
        told = training_.add_gradient(*pass, 1, 1, tensor);
    const Status stepped = pass->step().status();
    if (told.ok()) told = stepped;
    EXPECT_EQ(told.to_string(), stepped.to_string());
    EXPECT_EQ(told.code(), Code::kDataLoss) << told.to_string();
    EXPECT_THAT(told.message(), AllOf(HasSubstr("gradient of '"), HasSubstr("checksum")));
    EXPECT_EQ(training_.difference(), "");
  }
  ASSERT_TRUE(training_.train(1, step_options_).ok());
  step_model(training_.model, 1, step_options_);
  EXPECT_EQ(training_.run(0, step_options_), "");
}

}  // namespace
}  // namespace sluice
