#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <string>

#include "run_command.hpp"
#include "tools/store_view.hpp"
#include "trainer/text.hpp"
#include "trainer/trainer.hpp"

namespace sluice::tools {
namespace {

using ::testing::HasSubstr;
using trainer::TrainOptions;
using trainer::TrainReport;

/// All slots of a directory's only store, made unreadable for its checksums, and put right again where nothing was
/// written since.
class SpoiledSlots {
 public:
  explicit SpoiledSlots(const std::string& directory) {
    const auto views = look_at_stores({directory});
    EXPECT_TRUE(views.ok()) << views.status().to_string();
    const store::ExistingDrive& drive = views->front().ranks.front().drives.front();
    path_ = drive.data->path();
    first_ = drive.superblock->slots_offset;
    good_ = read();
    spoiled_ = good_;
    for (std::size_t at = 0; at < spoiled_.size(); at += kBlock) spoiled_[at] ^= 1;
    write(spoiled_);
  }
  void repair() {
    std::string bytes = read();
    ASSERT_EQ(bytes.size(), good_.size());
    for (std::size_t at = 0; at < bytes.size(); at += kBlock) {
      if (bytes.compare(at, kBlock, spoiled_, at, kBlock) == 0) bytes.replace(at, kBlock, good_, at, kBlock);
    }
    write(bytes);
  }

 private:
  static constexpr std::size_t kBlock = 512;

  std::string read() const {
    std::ifstream file(path_, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(first_));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& bytes) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(first_));
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.flush().good()) << path_;
  }

  std::string path_;
  std::uint64_t first_ = 0;
  std::string good_;
  std::string spoiled_;
};

class FailedTraining : public ::testing::Test {
 protected:
  FailedTraining() {
    std::ofstream text(folder_.path() + "/text");
    for (std::uint64_t i = 0; i < 12'000; ++i)
      text << static_cast<char>('a' + trainer::random_below(26, 1, i));
  }

  // Of six steps; all state is on the drive.
  TrainOptions options(const ScratchDirectory& drive) const {
    TrainOptions options;
    options.text_path = folder_.path() + "/text";
    options.directories = {drive.path()};
    options.shape = {.layers = 1, .width = 64, .heads = 2, .context = 16};
    options.steps = 6;
    options.warmup_steps = 2;
    options.sequences = 2;
    options.gemm_threads = 1;
    options.chunk_elements = 16 << 10;
    options.commit_every = 3;
    options.sample_bytes = options.validate_bytes = 0;
    return options;
  }
  static Result<TrainReport> train(
      const TrainOptions& options,
      const std::function<void(std::uint64_t)>& after_step = [](std::uint64_t) {}) {
    return trainer::train(options, {.after_step = [&](const trainer::StepReport& step) {
                            after_step(step.step);
                            return Status();
                          }});
  }

  const ScratchDirectory folder_;
  const ScratchDirectory drive_;
};

TEST_F(FailedTraining, CommitsTheStepsDoneBeforeAStepThatFails) {
  std::optional<SpoiledSlots> spoiled;
  const Status failed = train(options(drive_), [&](std::uint64_t step) {
                          if (step == 4) spoiled.emplace(drive_.path());
                        }).status();
  EXPECT_EQ(failed.code(), Code::kDataLoss) << failed.to_string();
  EXPECT_THAT(failed.message(), HasSubstr("step 5"));
  EXPECT_THAT(failed.message(), HasSubstr("steps 1 to 4 are in commit"));
  const auto views = look_at_stores({drive_.path()});
  ASSERT_TRUE(views.ok()) << views.status().to_string();
  EXPECT_EQ(views->front().commits.back().steps, 4U);

  ASSERT_TRUE(spoiled.has_value());
  spoiled->repair();
  TrainOptions resumed = options(drive_);
  resumed.start = trainer::Start::kResume;
  const auto finished = train(resumed);
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  EXPECT_EQ(finished->start.steps_done, 4U);
  const ScratchDirectory other;
  const auto undisturbed = train(options(other));
  ASSERT_TRUE(undisturbed.ok()) << undisturbed.status().to_string();
  EXPECT_EQ(finished->losses, undisturbed->losses);
  EXPECT_EQ(finished->fingerprint.state_xxh3, undisturbed->fingerprint.state_xxh3);
}

}  // namespace
}  // namespace sluice::tools
