#include "trainer/layers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reference.hpp"
#include "trainer/attention.hpp"
#include "trainer/parallel.hpp"
#include "trainer/scalar_math.hpp"
#include "trainer/workspace.hpp"

namespace sluice::trainer {
namespace {

using reference::kTolerance;
using reference::numeric_gradient;
using reference::random_values;
using reference::relative_error;
using reference::Values;

constexpr std::uint64_t kSeed = 7;

double dot(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Values in fp32 with the view that the layers take.
struct Block {
  Block(const Values& values, std::size_t cols) : floats(reference::to_floats(values)), cols_(cols) {}
  Block(std::size_t rows, std::size_t cols) : floats(rows * cols, 0.0F), cols_(cols) {}
  Matrix view() { return {floats.data(), floats.size() / cols_, cols_, cols_}; }
  std::vector<float> floats;

 private:
  std::size_t cols_;
};

class Layers : public ::testing::Test {
 protected:
  void SetUp() override { set_threads(2); }
  std::mt19937_64 random_{kSeed};
};

TEST_F(Layers, ExponentialIsWithinTwoUnitsOfTheLastPlace) {
  for (float x = -60; x < 60; x += 0.00713F) {
    const double exact = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(exponential(x)) / exact, 1, 2 * 0x1p-23) << x;
  }
  EXPECT_EQ(exponential(-1e30F), exponential(-60));
  EXPECT_EQ(exponential(0), 1);
}

TEST_F(Layers, LanesSumEveryTermOnce) {
  for (std::size_t count = 0; count < 70; ++count) {
    const float sum = sum_in_lanes(count, [](std::size_t i) { return static_cast<float>(i + 1); });
    ASSERT_EQ(sum, static_cast<float>(count * (count + 1) / 2));
  }
}

TEST_F(Layers, ProductsTakeTransposesStridesAndSums) {
  const Values a = random_values(random_, 5 * 7), b = random_values(random_, 7 * 3);
  Values a_transposed(a.size()), b_transposed(b.size());
  for (std::size_t i = 0; i < a.size(); ++i) a_transposed[i % 7 * 5 + i / 7] = a[i];
  for (std::size_t i = 0; i < b.size(); ++i) b_transposed[i % 3 * 7 + i / 3] = b[i];
  Block plain_a(a, 7), plain_b(b, 3), other_a(a_transposed, 5), other_b(b_transposed, 7);
  Values expected = reference::product(a, b, 7);
  for (const Operand& left : {Operand(plain_a.view()), transposed(other_a.view())}) {
    for (const Operand& right : {Operand(plain_b.view()), transposed(other_b.view())}) {
      Block wide(5, 8);
      const Matrix c = wide.view().cols_from(2, 3);
      multiply(c, left, right);
      multiply(c, left, right, Into::kAdd);
      for (std::size_t i = 0; i < 15; ++i) {
        EXPECT_NEAR(static_cast<double>(c.row(i / 3)[i % 3]), 2 * expected[i], 16 * kTolerance);
      }
      EXPECT_EQ(wide.floats[0], 0) << "what is beside the view stays";
    }
  }
}

TEST_F(Layers, RmsNormAndItsGradientMatchTheReference) {
  constexpr std::size_t kTokens = 5, kWidth = 37;  // no multiple of the lanes
  const Values x = random_values(random_, kTokens * kWidth), gain = random_values(random_, kWidth);
  const Values d_y = random_values(random_, x.size());
  Block in(x, kWidth), out(kTokens, kWidth), d_out(d_y, kWidth), d_in(kTokens, kWidth);
  const std::vector<float> gains = reference::to_floats(gain);
  rms_norm(out.view(), in.view(), gains);
  EXPECT_LT(relative_error(out.floats, reference::rms_norm(x, gain)), kTolerance);

  std::vector<float> d_gain(kWidth), inverse_rms(kTokens);
  rms_norm_backward(d_in.view(), d_gain, d_out.view(), in.view(), gains, inverse_rms);
  const auto by_x = [&](const Values& at) { return dot(reference::rms_norm(at, gain), d_y); };
  const auto by_gain = [&](const Values& at) { return dot(reference::rms_norm(x, at), d_y); };
  EXPECT_LT(relative_error(d_in.floats, numeric_gradient(by_x, x)), kTolerance);
  EXPECT_LT(relative_error(d_gain, numeric_gradient(by_gain, gain)), kTolerance);
}

TEST_F(Layers, GeluAndItsGradientMatchTheReference) {
  const Values x = random_values(random_, 4 * 33, 3), d_y = random_values(random_, x.size());
  const auto all = [](Values values) {
    for (double& value : values) value = reference::gelu(value);
    return values;
  };
  Block out(4, 33), in(x, 33), d(d_y, 33);
  gelu(out.view(), in.view());
  gelu_backward(d.view(), in.view());
  EXPECT_LT(relative_error(out.floats, all(x)), kTolerance);
  EXPECT_LT(
      relative_error(d.floats, numeric_gradient([&](const Values& at) { return dot(all(at), d_y); }, x)),
      kTolerance);
}

TEST_F(Layers, AttentionAndItsGradientMatchTheReference) {
  constexpr std::size_t kHeads = 2, kHeadWidth = 6, kWidth = kHeads * kHeadWidth, kLength = 5,
                        kTokens = 3 * kLength;
  const Values x = random_values(random_, kTokens * 3 * kWidth),
               d_y = random_values(random_, kTokens * kWidth);
  Workspace workspace;
  const Attention attention(kHeads, kHeadWidth, kLength + 3, workspace);
  Block qkv(x, 3 * kWidth), out(kTokens, kWidth), d_out(d_y, kWidth), d_qkv(kTokens, 3 * kWidth);
  attention.rotate(qkv.view(), kLength);
  attention.forward(out.view(), qkv.view(), kLength);
  EXPECT_LT(relative_error(out.floats, reference::attention(x, kWidth, kHeads, kLength)), kTolerance);

  attention.backward(d_qkv.view(), d_out.view(), qkv.view(), kLength);
  attention.rotate_backward(d_qkv.view(), kLength);
  const auto loss = [&](const Values& at) {
    return dot(reference::attention(at, kWidth, kHeads, kLength), d_y);
  };
  EXPECT_LT(relative_error(d_qkv.floats, numeric_gradient(loss, x)), kTolerance);
}

TEST_F(Layers, EmbeddingGradientAddsUpTheTokensOfARow) {
  const std::vector<std::uint8_t> tokens = {9, 255, 9};
  Block table(random_values(random_, kVocabulary * 40), 40), out(3, 40), d_table(kVocabulary, 40);
  embed(out.view(), table.view(), tokens);
  EXPECT_EQ(out.view().row(1)[39], table.view().row(255)[39]);
  embed_backward(d_table.view(), out.view(), tokens);
  EXPECT_EQ(d_table.view().row(9)[0], 2 * table.view().row(9)[0]);
  EXPECT_EQ(d_table.view().row(8)[0], 0);
}

TEST_F(Layers, CrossEntropyAndItsGradientMatchTheReference) {
  const std::vector<std::uint8_t> targets = {0, 200, 31};
  const Values x = random_values(random_, targets.size() * kVocabulary, 2);
  Block logits(x, kVocabulary);
  std::vector<float> losses(targets.size());
  const double mean = cross_entropy(logits.view(), targets, losses);
  EXPECT_NEAR(mean, reference::cross_entropy(x, targets), kTolerance * mean);
  const auto loss = [&](const Values& at) { return reference::cross_entropy(at, targets); };
  EXPECT_LT(relative_error(logits.floats, numeric_gradient(loss, x)), kTolerance);
}

}  // namespace
}  // namespace sluice::trainer
