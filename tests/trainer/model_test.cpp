#include "trainer/model.hpp"

#include <gtest/gtest.h>

#include "array_parameters.hpp"
#include "reference.hpp"
#include "trainer/parallel.hpp"

namespace sluice::trainer {
namespace {

using reference::Values;

constexpr Shape kShape{.layers = 2, .width = 8, .heads = 2, .context = 6};
constexpr std::size_t kSequences = 2;
constexpr std::uint64_t kSeed = 11;

class ModelTest : public ::testing::Test {
 protected:
  ModelTest() {
    set_threads(2);
    std::mt19937_64 random(kSeed);
    values_ = reference::random_values(random, parameter_count(kShape), 0.4);
    std::uniform_int_distribution<int> byte(0, 255);
    for (auto* bytes : {&inputs_, &targets_}) {
      for (std::size_t i = 0; i < kSequences * kShape.context; ++i) {
        bytes->push_back(static_cast<std::uint8_t>(byte(random)));
      }
    }
  }
  Batch batch() const { return {inputs_, targets_, kShape.context}; }
  ArrayParameters parameters() const { return {kShape, reference::to_floats(values_)}; }

  Values values_;
  std::vector<std::uint8_t> inputs_, targets_;
  Workspace workspace_;
};

TEST_F(ModelTest, LossMatchesTheReference) {
  Model model(kShape, kSequences, workspace_);
  ArrayParameters array = parameters();
  const double expected = reference::model_loss(kShape, values_, inputs_, targets_, kShape.context);
  const auto loss = model.loss(array, batch());
  ASSERT_TRUE(loss.ok());
  EXPECT_NEAR(*loss, expected, reference::kTolerance * expected);
}

TEST_F(ModelTest, GradientOfEveryParameterMatchesFiniteDifferences) {
  Model model(kShape, kSequences, workspace_);
  ArrayParameters array = parameters();
  ASSERT_TRUE(model.learn(array, batch()).ok());
  const auto loss = [&](const Values& at) {
    return reference::model_loss(kShape, at, inputs_, targets_, kShape.context);
  };
  const Values expected = reference::numeric_gradient(loss, values_);
  std::size_t first = 0;
  for (std::size_t part = 0; part < part_count(kShape); ++part) {
    for (const TensorSpec& tensor : tensors_of(kShape, part)) {
      if (tensor.role == Role::kHead) continue;
      const auto actual = std::span(array.gradients).subspan(first, tensor.elements());
      const auto from = expected.begin() + static_cast<std::ptrdiff_t>(first);
      const Values wanted(from, from + static_cast<std::ptrdiff_t>(tensor.elements()));
      EXPECT_LT(reference::relative_error(actual, wanted), reference::kTolerance) << tensor.name;
      first += tensor.elements();
    }
  }
  EXPECT_EQ(first, expected.size());
}

TEST_F(ModelTest, MicroBatchesAddTheirGradients) {
  Model model(kShape, kSequences, workspace_);
  ArrayParameters once = parameters(), twice = parameters();
  ASSERT_TRUE(model.learn(once, batch()).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(model.learn(twice, batch()).ok());
  // The last norm's gain gets one contribution a micro-batch: exactly twice the gradient.
  for (std::size_t i = once.gradients.size() - kShape.width; i < once.gradients.size(); ++i) {
    EXPECT_EQ(twice.gradients[i], 2 * once.gradients[i]);
  }
}

TEST_F(ModelTest, RepetitionGivesTheSameBits) {
  Model model(kShape, kSequences, workspace_);
  ArrayParameters first = parameters(), second = parameters();
  const auto loss = model.learn(first, batch());
  ASSERT_TRUE(model.next_byte_logits(first, std::span(inputs_).first(3))
                  .ok());  // leaves other numbers in the buffers
  const auto again = model.learn(second, batch());
  ASSERT_TRUE(loss.ok() && again.ok());
  EXPECT_EQ(*loss, *again);
  EXPECT_EQ(first.gradients, second.gradients);
}

TEST_F(ModelTest, PredictionLooksAtEarlierBytesAlone) {
  Model model(kShape, kSequences, workspace_);
  ArrayParameters array = parameters();
  const auto logits = model.next_byte_logits(array, std::span(inputs_).first(4));
  ASSERT_TRUE(logits.ok());
  // The loss of byte 4 alone, from the mean over one sequence of 4 and that over one of 3.
  const auto sum_over = [&](std::size_t length) {
    return static_cast<double>(length) * reference::model_loss(kShape, values_,
                                                               std::span(inputs_).first(length),
                                                               std::span(targets_).first(length), length);
  };
  const double expected = sum_over(4) - sum_over(3);
  const Values row(logits->begin(), logits->end());
  EXPECT_NEAR(reference::cross_entropy(row, std::span(targets_).subspan(3, 1)), expected,
              16 * reference::kTolerance);
}

TEST_F(ModelTest, FailedLoadEndsTheWorkWithItsStatus) {
  struct Failing : ArrayParameters {
    using ArrayParameters::ArrayParameters;
    Status load(std::size_t part, std::span<float> target) override {
      if (part == 2) return Status(Code::kIoError, "the drive is gone");
      return ArrayParameters::load(part, target);
    }
  };
  Model model(kShape, kSequences, workspace_);
  Failing failing(kShape, reference::to_floats(values_));
  EXPECT_EQ(model.learn(failing, batch()).status().code(), Code::kIoError);
}

TEST(ShapeTest, PartsCoverAllParametersOnce) {
  std::uint64_t elements = 0;
  for (std::size_t part = 0; part < part_count(kShape); ++part) elements += elements_of(kShape, part);
  EXPECT_EQ(elements, parameter_count(kShape) + kVocabulary * kShape.width) << "the tied head counts once";
  EXPECT_EQ(parameter_count(kShape), kVocabulary * 8 + 2 * (2 * 8 + 12 * 64) + 8);
}

TEST(ShapeTest, RefusalsNameTheNumberAndWhatIsAccepted) {
  const auto message = [](const Shape& shape) { return validate(shape).message(); };
  EXPECT_TRUE(validate(kShape).ok());
  EXPECT_EQ(message({.layers = 0}), "layers is 0; accepted: 1..1000");
  EXPECT_EQ(message({.width = 100, .heads = 3}),
            "heads is 3; accepted: numbers whose double divides the width 100");
  EXPECT_EQ(message({.context = 1}), "context is 1; accepted: 2..16384");
}

}  // namespace
}  // namespace sluice::trainer
