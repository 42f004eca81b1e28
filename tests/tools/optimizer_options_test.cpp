#include "tools/optimizer_options.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace sluice::tools {
namespace {

using ::testing::HasSubstr;

const AdamW kOwn{.lr = 7, .beta2 = 0.5};

Result<StateRule> read(std::vector<std::string> words) {
  CLI::App app;
  OptimizerArguments arguments;
  add_optimizer_options(app, arguments, kOwn);
  std::ranges::reverse(words);
  app.parse(words);
  return read_optimizer(arguments, kOwn);
}

std::string refusal(const std::vector<std::string>& words) {
  const auto rule = read(words);
  EXPECT_EQ(rule.status().code(), Code::kInvalidArgument) << ::testing::PrintToString(words);
  return rule.status().message();
}

TEST(OptimizerOptions, WithoutAnyTheCommandsOwnRuleHolds) {
  const auto rule = read({});
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(rule->policy, Policy::kBf16Split);
  EXPECT_EQ(std::get<AdamW>(rule->optimizer).lr, 7);
  EXPECT_EQ(std::get<AdamW>(rule->optimizer).beta2, 0.5);
}

TEST(OptimizerOptions, OtherRulesHaveTheirOwnDefaults) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    if (kind.name == "adamw") continue;
    const auto rule = read({"--optimizer", std::string(kind.name)});
    ASSERT_TRUE(rule.ok()) << kind.name;
    EXPECT_EQ(optimizer_text(rule->optimizer), optimizer_text(kind.defaults));
  }
}

TEST(OptimizerOptions, EveryNumberOfEveryRuleHasAnOption) {
  for (const OptimizerKind& kind : optimizer_kinds()) {
    for (const OptimizerNumber& number : kind.numbers) {
      std::string option = "--" + std::string(number.name);
      std::ranges::replace(option, '_', '-');
      std::vector<std::string> words = {"--optimizer", std::string(kind.name), option};
      if (number.name != "nesterov") words.emplace_back("0.25");
      if (number.name == "nesterov") words.insert(words.end(), {"--momentum", "0.5"});
      const auto rule = read(words);
      ASSERT_TRUE(rule.ok()) << ::testing::PrintToString(words) << rule.status().to_string();
      EXPECT_EQ(number.get(rule->optimizer), number.name == "nesterov" ? 1 : 0.25);
    }
  }
}

TEST(OptimizerOptions, EveryPolicyThatIsStepped) {
  for (const Policy policy : policies()) {
    const std::vector<std::string> words = {"--policy", std::string(policy_name(policy))};
    if (policy == Policy::kFrozen) {
      EXPECT_THROW((void)read(words), CLI::ParseError);
    } else {
      EXPECT_EQ(read(words)->policy, policy);
    }
  }
}

TEST(OptimizerOptions, NumberThatTheRuleHasNotIsRefusedByName) {
  EXPECT_EQ(refusal({"--momentum", "0.9"}),
            "--momentum is no number of adamw, which has --lr, --beta1, --beta2, --eps, --weight-decay");
  EXPECT_THAT(refusal({"--optimizer", "lion", "--eps", "1e-8"}), HasSubstr("--eps is no number of lion"));
  EXPECT_THAT(refusal({"--nesterov"}), HasSubstr("--nesterov is no number of adamw"));
  EXPECT_THAT(refusal({"--optimizer", "sgd", "--lr-decay", "1"}), HasSubstr("--lr-decay"));
}

TEST(OptimizerOptions, ValuesAndPairsThatDoNotDoAreRefused) {
  EXPECT_THAT(refusal({"--lr", "-1"}), HasSubstr("adamw lr = -1"));
  EXPECT_THAT(refusal({"--beta1", "nan"}), HasSubstr("beta1"));
  EXPECT_THAT(refusal({"--optimizer", "sgd", "--nesterov"}), HasSubstr("> 0 with nesterov"));
  EXPECT_THAT(refusal({"--policy", "moments8", "--optimizer", "adagrad"}),
              HasSubstr("moments8 with optimizer adagrad"));
}

TEST(OptimizerOptions, StateIsOfThePlanesThatPolicyAndRuleUse) {
  const auto bytes = [](std::vector<std::string> words) { return state_bytes(*read(std::move(words)), 512); };
  EXPECT_EQ(bytes({}), 12 * 512U);
  EXPECT_EQ(bytes({"--optimizer", "sgd"}), 8 * 512U);
  EXPECT_EQ(bytes({"--optimizer", "adagrad", "--policy", "fp32"}), 8 * 512U);
  EXPECT_EQ(bytes({"--policy", "fp16_master"}), 14 * 512U);
  EXPECT_EQ(bytes({"--policy", "bf16_moments"}), 8 * 512U);
  EXPECT_EQ(bytes({"--policy", "moments8"}), 6 * 512U + 2 * 2 * 4U);
  EXPECT_EQ(bytes({"--policy", "moments8", "--optimizer", "lion"}), 5 * 512U + 2 * 4U);
}

}  // namespace
}  // namespace sluice::tools
