#include "trainer/optimizer_numbers.hpp"

#include <gtest/gtest.h>

namespace sluice::trainer {
namespace {

TEST(OptimizerNumbers, EveryRuleHasALearningRateAndAWeightDecay) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    const Optimizer changed = with_number(with_number(kind.defaults, "lr", 0.5), "weight_decay", 0.25);
    EXPECT_EQ(learning_rate(changed), 0.5) << kind.name;
    EXPECT_EQ(find_number(kind, "weight_decay")->get(changed), 0.25) << kind.name;
    EXPECT_EQ(changed.index(), kind.defaults.index()) << kind.name;
  }
}

TEST(OptimizerNumbers, NumberThatARuleHasNotIsNotFoundAndChangesNothing) {
  EXPECT_EQ(find_number(kind_of(AdamW{}), "momentum"), nullptr);
  EXPECT_EQ(std::get<Sgd>(with_number(Sgd{.lr = 3}, "beta1", 0.5)).lr, 3);
}

}  // namespace
}  // namespace sluice::trainer
