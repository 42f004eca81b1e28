#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/temporary_directory.hpp"
#include "tools/command.hpp"
#include "trainer/text.hpp"
#include "trainer/trainer.hpp"

namespace sluice::tools {
namespace {

using ::testing::HasSubstr;

class TrainCommand : public ::testing::Test {
 protected:
  TrainCommand() {
    std::ofstream text(text_);
    for (std::uint64_t i = 0; i < 10'000; ++i)
      text << static_cast<char>('a' + trainer::random_below(26, 1, i));
  }

  // What the command returns for a model of one small layer and two steps, with `arguments` besides.
  Result<nlohmann::ordered_json> run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "--text", text_, "--steps", "2", "--layers", "1", "--width",
                                         "64", "--heads", "2", "--context", "16", "--sample", "3",
                                         "--validate", "100", "--chunk-elements", "16384"});
    std::ranges::reverse(arguments);
    CLI::App app;
    Command chosen;
    add_train_command(app, chosen);
    app.parse(arguments);
    return chosen();
  }

  const sim::TemporaryDirectory drive_;
  const sim::TemporaryDirectory folder_;
  const std::string text_ = folder_.path() + "/text";
};

TEST_F(TrainCommand, JsonHasTheFieldsOfItsContract) {
  const auto json = run({"--dir", drive_.path(), "--host-memory", "2x"});
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  for (const char* field :
       {"losses", "weights_xxh3", "state_xxh3", "resumed_from_step", "state_bytes", "peak_rss_bytes",
        "hugetlb_bytes", "reserved_bytes", "trainer_bytes", "step_seconds", "stall_s", "validation_loss",
        "unigram_entropy", "sample", "backend", "isa", "direct", "fallbacks"}) {
    EXPECT_TRUE(json->contains(field)) << field;
  }
  EXPECT_EQ(json->at("losses").size(), 2U);
  EXPECT_EQ(json->at("state_xxh3").get<std::string>().size(), 16U);
  EXPECT_TRUE(json->at("resumed_from_step").is_null());
  EXPECT_EQ(json->at("sample").get<std::string>().size(), 3U);
  EXPECT_GE(json->at("peak_rss_bytes").get<std::uint64_t>(), json->at("trainer_bytes").get<std::uint64_t>());
}

TEST_F(TrainCommand, HostMemoryMayBeAPartOfTheStateOrTheLeast) {
  const auto host_bytes = [&](const char* budget) {
    const auto json = run({"--dir", drive_.path(), "--host-memory", budget});
    EXPECT_TRUE(json.ok()) << json.status().to_string();
    return std::pair(json->at("settings").at("host_memory_bytes").get<std::uint64_t>(), *json);
  };
  const auto [part, of_part] = host_bytes("1.5x");
  EXPECT_EQ(part, trainer::state_bytes({.layers = 1, .width = 64, .heads = 2, .context = 16}) * 3 / 2);
  const auto [least, of_least] = host_bytes("least");
  EXPECT_EQ(least, of_least.at("settings").at("least_host_bytes").get<std::uint64_t>());
  EXPECT_EQ(of_part.at("state_xxh3"), of_least.at("state_xxh3"));
}

TEST_F(TrainCommand, BadValuesEndInParsing) {
  EXPECT_THROW((void)run({"--host-memory", "2y"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--backend", "magic"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--steps", "-1"}), CLI::ParseError);
  EXPECT_THROW((void)run({"--resume"}), CLI::ParseError);
  EXPECT_EQ(run({"--batch", "0"}).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::tools
