#include "tools/state_description.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace sluice::tools {
namespace {

using ::testing::HasSubstr;

StateDescription example() {
  return {.steps = 12,
          .seed = 0xffffffffffffffff,
          .groups = {{.name = "a", .policy = Policy::kFp32, .optimizer = AdamW{.lr = 0.1, .eps = 1e-300}},
                     {.name = "b",
                      .policy = Policy::kFrozen,
                      .optimizer = AdamW{},
                      .gradient = GradientStorage::kBf16Once,
                      .frozen_dtype = DType::kI8}},
          .parameters = {{"p", 1}, {"q \"quoted\" \u00fc", 0}},
          .aliases = {{"r", 1}}};
}

formats::Metadata encoded(const StateDescription& description) {
  const auto metadata = encode(description);
  EXPECT_TRUE(metadata.ok()) << metadata.status().to_string();
  return metadata.ok() ? *metadata : formats::Metadata{{"", ""}};
}

// The example's text with one entry replaced.
Result<StateDescription> with(const std::string& pointer, const nlohmann::json& value) {
  formats::Metadata metadata = encoded(example());
  nlohmann::json json = nlohmann::json::parse(metadata.begin()->second);
  json[nlohmann::json::json_pointer(pointer)] = value;
  metadata.begin()->second = json.dump();
  return decode_description(metadata, "file");
}

TEST(StateDescription, ComesBackAsItWas) {
  const auto decoded = decode_description(encoded(example()), "file");
  ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
  EXPECT_EQ(encoded(*decoded), encoded(example()));
  EXPECT_EQ(decoded->seed, 0xffffffffffffffff);
  EXPECT_EQ(std::get<AdamW>(decoded->groups[0].optimizer).lr, 0.1);
  EXPECT_EQ(std::get<AdamW>(decoded->groups[0].optimizer).eps, 1e-300);
  EXPECT_EQ(decoded->groups[1].frozen_dtype, DType::kI8);
  EXPECT_EQ(decoded->groups[1].gradient, GradientStorage::kBf16Once);
  EXPECT_EQ(decoded->parameters[1].name, "q \"quoted\" \u00fc");
  EXPECT_EQ(decoded->aliases[0].parameter, 1U);
}

TEST(StateDescription, EveryPolicyAndRuleThatGoTogetherComeBackWithAllNumbers) {
  for (const Policy policy : policies())
    for (const OptimizerKind& kind : optimizer_kinds()) {
      StateDescription description = example();
      StateDescription::Group& group = description.groups[0];
      group.policy = policy;
      group.optimizer = kind.defaults;
      double value = 0.0625;
      for (const OptimizerNumber& number : kind.numbers)
        number.set(group.optimizer, number.name == "nesterov" ? 0 : value *= 1.25);
      const auto decoded = decode_description(encoded(description), "file");
      if (!validate(policy, group.optimizer).ok()) {
        EXPECT_EQ(decoded.status().code(), Code::kDataLoss);
        EXPECT_THAT(decoded.status().message(), HasSubstr("moments8 with optimizer adagrad"));
        continue;
      }
      ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
      EXPECT_EQ(decoded->groups[0].policy, policy);
      ASSERT_EQ(decoded->groups[0].optimizer.index(), group.optimizer.index());
      for (const OptimizerNumber& number : kind.numbers)
        EXPECT_EQ(number.get(decoded->groups[0].optimizer), number.get(group.optimizer)) << number.name;
    }
}

TEST(StateDescription, WhatCannotBeIsRefusedWithTheFile) {
  struct Fault {
    const char* pointer;
    nlohmann::json value;
  };
  for (const Fault& fault :
       {Fault{"/steps", -1}, Fault{"/steps", "12"}, Fault{"/steps", 1.5}, Fault{"/seed", nullptr},
        Fault{"/groups", 3}, Fault{"/groups/0", {}}, Fault{"/groups/0/policy", "fp64"},
        Fault{"/groups/0/gradient", "none"}, Fault{"/groups/1/frozen_dtype", "F7"},
        Fault{"/groups/0/optimizer/kind", "sgd"}, Fault{"/groups/0/optimizer/beta1", 1.0},
        Fault{"/groups/0/optimizer/lr", "fast"}, Fault{"/parameters/0/group", 2},
        Fault{"/parameters/0/group", 4294967296}, Fault{"/parameters/0/name", 7},
        Fault{"/aliases/0/parameter", 2}, Fault{"/aliases", "none"}, Fault{"/version", "1"}}) {
    const auto decoded = with(fault.pointer, fault.value);
    EXPECT_EQ(decoded.status().code(), Code::kDataLoss) << fault.pointer;
    EXPECT_THAT(decoded.status().message(), HasSubstr("file: metadata")) << fault.pointer;
  }
  EXPECT_EQ(decode_description({}, "file").status().code(), Code::kDataLoss);
  EXPECT_EQ(with("/version", 2).status().code(), Code::kUnimplemented);
}

TEST(StateDescription, NamesThatAreNotUtf8AreRefused) {
  const auto refusal = [](StateDescription description) {
    const Status status = encode(description).status();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    return status.message();
  };
  StateDescription description = example();
  description.groups[1].name = "b\xff";
  EXPECT_THAT(refusal(description), HasSubstr("group \"b\xff\": not UTF-8"));
  description = example();
  description.parameters[0].name = "\xc3";
  EXPECT_THAT(refusal(description), HasSubstr("parameter \"\xc3\": not UTF-8"));
  description = example();
  description.aliases[0].name = "\xed\xa0\x80";
  EXPECT_THAT(refusal(description), HasSubstr("alias"));
}

TEST(StateDescription, TruncatedTextIsRefusedAtEveryLength) {
  const formats::Metadata whole = encoded(example());
  for (std::size_t length = 0; length < whole.begin()->second.size(); ++length) {
    formats::Metadata cut = whole;
    cut.begin()->second.resize(length);
    EXPECT_EQ(decode_description(cut, "file").status().code(), Code::kDataLoss) << length;
  }
}

TEST(StateDescription, OptimizerFileLiesBesideTheModel) {
  EXPECT_EQ(optimizer_path("a/model.safetensors"), "a/optimizer.safetensors");
  EXPECT_EQ(optimizer_path("model.safetensors.index.json"), "optimizer.safetensors");
  EXPECT_EQ(optimizer_path("a.b/mine.safetensors"), "a.b/mine.optimizer.safetensors");
}

}  // namespace
}  // namespace sluice::tools
