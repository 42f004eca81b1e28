#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "run_command.hpp"
#include "support/temporary_directory.hpp"
#include "tools/command.hpp"
#include "tools/store_view.hpp"
#include "trainer/text.hpp"
#include "trainer/trainer.hpp"

namespace sluice::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

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
  for (const char* field : {"losses",          "weights_xxh3",
                            "state_xxh3",      "resumed_from_step",
                            "state_bytes",     "peak_rss_bytes",
                            "hugetlb_bytes",   "reserved_bytes",
                            "trainer_bytes",   "step_seconds",
                            "stall_s",         "validation_loss",
                            "unigram_entropy", "sample",
                            "backend",         "isa",
                            "direct",          "fallbacks",
                            "user_bytes_xxh3", "commits",
                            "commit_wait_s",   "steps_since_commit",
                            "crash_cost",      "differences"}) {
    EXPECT_TRUE(json->contains(field)) << field;
  }
  EXPECT_EQ(json->at("losses").size(), 2U);
  EXPECT_EQ(json->at("state_xxh3").get<std::string>().size(), 16U);
  EXPECT_TRUE(json->at("resumed_from_step").is_null());
  EXPECT_TRUE(json->at("user_bytes_xxh3").is_null());
  EXPECT_EQ(json->at("commits"), 0);
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
  EXPECT_EQ(part,
            12 * trainer::parameter_count({.layers = 1, .width = 64, .heads = 2, .context = 16}) * 3 / 2);
  const auto [least, of_least] = host_bytes("least");
  EXPECT_EQ(least, of_least.at("settings").at("least_host_bytes").get<std::uint64_t>());
  EXPECT_EQ(of_part.at("state_xxh3"), of_least.at("state_xxh3"));
}

TEST_F(TrainCommand, BadValuesEndInParsing) {
  EXPECT_THROW((void)run({"--host-memory", "2y"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--backend", "magic"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--steps", "-1"}), CLI::ParseError);
  EXPECT_THROW((void)run({"--schedule", "step"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--min-lr", "1.5"}), CLI::ValidationError);
  EXPECT_THROW((void)run({"--overlap", "yes"}), CLI::ValidationError);
  for (const char* const scale : {"0", "-1", "inf", "nan", "much", "3.5e38", "1e300", "1e-39"})
    EXPECT_THROW((void)run({"--loss-scale", scale}), CLI::ValidationError) << scale;
  try {
    (void)run({"--loss-scale", "3.5e38"});
    FAIL() << "beyond fp32";
  } catch (const CLI::ValidationError& refused) {
    EXPECT_THAT(refused.what(), testing::HasSubstr("1.17549435e-38 to 3.40282346e+38"));
  }
  EXPECT_THROW((void)run({"--resume"}), CLI::ParseError);
  EXPECT_THROW((void)run({"--dir", drive_.path(), "--resume"}), CLI::ParseError);
  EXPECT_THROW((void)run({"--dir", drive_.path(), "--keep-commits", "2"}), CLI::ParseError);
  EXPECT_THROW((void)run({"--commit-every", "1"}), CLI::ParseError) << "without a directory";
  for (const std::vector<std::string>& bad : {std::vector<std::string>{"--commit-every", "0"},
                                              {"--commit-every", "-1"},
                                              {"--commit-every", "1", "--keep-commits", "0"},
                                              {"--commit-every", "1", "--keep-commits", "16"},
                                              {"--commit-every", "1", "--resume-from", "0"},
                                              {"--commit-every", "1", "--recover-dir", "/no/such/place"}}) {
    std::vector<std::string> arguments = {"--dir", drive_.path()};
    arguments.insert(arguments.end(), bad.begin(), bad.end());
    EXPECT_THROW((void)run(arguments), CLI::ParseError) << ::testing::PrintToString(bad);
  }
  EXPECT_EQ(run({"--batch", "0"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(run({"--max-norm", "0"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(run({"--momentum", "0.5"}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(run({"--policy", "moments8", "--optimizer", "adagrad"}).status().code(), Code::kInvalidArgument);
}

TEST_F(TrainCommand, SettingsSayHowItLearns) {
  const auto json = run({"--beta1", "0.8", "--schedule", "linear", "--min-lr", "0.5", "--warmup", "1",
                         "--loss-scale", "dynamic", "--max-norm", "inf", "--overlap", "off"});
  ASSERT_TRUE(json.ok()) << json.status().to_string();
  const auto& settings = json->at("settings");
  EXPECT_EQ(settings.at("optimizer").at("name"), "adamw");
  EXPECT_EQ(settings.at("optimizer").at("beta1"), 0.8);
  EXPECT_EQ(settings.at("optimizer").at("beta2"), 0.95) << "the trainer's own";
  EXPECT_EQ(settings.at("schedule"), "linear");
  EXPECT_EQ(settings.at("min_lr"), 0.5);
  EXPECT_TRUE(settings.at("max_norm").is_null());
  EXPECT_EQ(settings.at("loss_scale"), "dynamic");
  EXPECT_EQ(settings.at("overlap"), "off");
  EXPECT_EQ(json->at("loss_scale"), 65536);
  EXPECT_EQ(json->at("skipped_steps"), 0);
}

TEST_F(TrainCommand, ResumedRunReportsWhatAnUndisturbedOneDoes) {
  const std::vector<std::string> commits = {"--dir",          drive_.path(), "--commit-every", "1",
                                            "--keep-commits", "2",           "--host-memory",  "unlimited"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), commits.begin(), commits.end());
    return run(more);
  };
  const auto whole = with({"--resume"});
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  EXPECT_TRUE(whole->at("resumed_from_step").is_null()) << "there was no commit";
  EXPECT_EQ(whole->at("commits"), 2);
  EXPECT_EQ(whole->at("steps_since_commit"), 0);
  EXPECT_EQ(whole->at("user_bytes_xxh3").get<std::string>().size(), 16U);
  EXPECT_GT(whole->at("moved_bytes").at("commit_records_written").get<std::uint64_t>(), 0U);

  const auto refused = with({});
  EXPECT_EQ(refused.status().code(), Code::kAlreadyExists) << refused.status().to_string();
  EXPECT_THAT(refused.status().message(), HasSubstr("--resume"));
  const auto scratch = run({"--dir", drive_.path(), "--host-memory", "least"});
  EXPECT_EQ(scratch.status().code(), Code::kAlreadyExists) << scratch.status().to_string();
  EXPECT_THAT(scratch.status().message(), Not(HasSubstr("--resume"))) << "it needs --commit-every";

  const auto views = look_at_stores({drive_.path()});
  ASSERT_TRUE(views.ok());
  const std::uint64_t newest = views->front().commits.back().number;
  const auto finished = with({"--resume"});
  ASSERT_TRUE(finished.ok()) << finished.status().to_string();
  EXPECT_EQ(finished->at("resumed_from_step"), 2);
  EXPECT_TRUE(finished->at("step_seconds").is_null()) << "nothing was left to train";
  EXPECT_TRUE(finished->at("differences").empty()) << finished->at("differences");
  const auto half = with({"--resume-from", std::to_string(newest - 1)});
  ASSERT_TRUE(half.ok()) << half.status().to_string();
  EXPECT_EQ(half->at("resumed_from_step"), 1);
  for (const auto* resumed : {&*finished, &*half}) {
    for (const char* field :
         {"losses", "state_xxh3", "weights_xxh3", "user_bytes_xxh3", "validation_loss", "sample"})
      EXPECT_EQ(resumed->at(field), whole->at(field)) << field;
  }
}

TEST_F(TrainCommand, SomebodysFileInARanksDirectoryIsNothingToResumeFrom) {
  const std::vector<std::string> arguments = {"--dir", drive_.path(),   "--commit-every",
                                              "1",     "--host-memory", "least"};
  ASSERT_TRUE(run(arguments).ok());
  const auto views = look_at_stores({drive_.path()});
  ASSERT_TRUE(views.ok());
  std::ofstream(views->front().ranks.front().drives.front().rank.path() + "/notes.txt") << "mine";
  const Status refused = run(arguments).status();
  EXPECT_EQ(refused.code(), Code::kAlreadyExists) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("notes.txt"));
  EXPECT_THAT(refused.message(), Not(HasSubstr("--resume")));
}

TEST_F(TrainCommand, ResumeOfAnotherRunIsBadUsageAndLosesNoCommit) {
  const std::string other_text = folder_.path() + "/other";
  std::ofstream(other_text) << std::string(10'000, 'x');
  using Settings = std::map<std::string, std::string>;
  const auto command = [&](const Settings& changed) {
    Settings settings = {{"--text", text_},         {"--dir", drive_.path()}, {"--steps", "7"},
                         {"--layers", "1"},         {"--width", "64"},        {"--heads", "2"},
                         {"--context", "16"},       {"--sample", "0"},        {"--validate", "0"},
                         {"--commit-every", "1"},   {"--keep-commits", "3"},  {"--chunk-elements", "16384"},
                         {"--host-memory", "least"}};
    for (const auto& [name, value] : changed) settings[name] = value;
    std::vector<std::string> arguments = {"train", "--json"};
    for (const auto& [name, value] : settings) {
      arguments.push_back(name);
      if (!value.empty()) arguments.push_back(value);
    }
    return run_command(arguments);
  };
  ASSERT_EQ(command({}).exit_code, 0);
  const auto usable = [&] {
    std::vector<std::uint64_t> steps, numbers;
    const auto views = look_at_stores({drive_.path()});
    EXPECT_TRUE(views.ok()) << views.status().to_string();
    for (const CommitView& commit : views->front().commits) {
      if (!commit.usable) continue;
      steps.push_back(commit.steps);
      numbers.push_back(commit.number);
    }
    EXPECT_THAT(steps, ElementsAre(5, 6, 7));
    return numbers;
  };
  const std::vector<std::uint64_t> numbers = usable();
  const std::string oldest = std::to_string(numbers.front());
  for (const Settings& changed :
       {Settings{{"--resume-from", oldest}, {"--seed", "9"}},
        {{"--resume-from", oldest}, {"--lr", "0.5"}},
        {{"--resume-from", oldest}, {"--steps", "8"}},
        {{"--resume-from", oldest}, {"--text", other_text}},
        {{"--resume-from", oldest}, {"--seed", "9"}, {"--host-memory", "unlimited"}},
        {{"--resume", ""}, {"--seed", "9"}, {"--chunk-elements", "32768"}}}) {
    SCOPED_TRACE(::testing::PrintToString(changed));
    const CommandResult refused = command(changed);
    EXPECT_EQ(refused.exit_code, 2) << refused.errors;
    EXPECT_THAT(refused.errors, HasSubstr("committed with"));
    EXPECT_EQ(usable(), numbers);
  }

  const CommandResult resumed = command({{"--resume", ""}});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.errors;
  EXPECT_EQ(resumed.json().at("resumed_from_step"), 7);
}

TEST_F(TrainCommand, InterruptedRunCommitsTheStepUnderWayAndSaysSo) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    const ScratchDirectory drive;
    const std::vector<std::string> arguments = {"train",          "--json",     "--text",           text_,
                                                "--dir",          drive.path(), "--steps",          "100000",
                                                "--layers",       "1",          "--width",          "64",
                                                "--heads",        "2",          "--context",        "16",
                                                "--sample",       "0",          "--validate",       "0",
                                                "--commit-every", "100000",     "--chunk-elements", "16384",
                                                "--host-memory",  "unlimited"};
    bool sent = false;
    const CommandResult stopped = run_command(arguments, [&](pid_t process, const std::string& errors) {
      if (sent || errors.find("loss") == std::string::npos) return;
      sent = true;
      kill(process, signal);
    });
    EXPECT_EQ(stopped.exit_code, 128 + signal) << stopped.errors;
    const auto views = look_at_stores({drive.path()});
    ASSERT_TRUE(views.ok()) << views.status().to_string();
    ASSERT_FALSE(views->empty());
    ASSERT_FALSE(views->front().commits.empty());
    EXPECT_THAT(
        stopped.errors,
        HasSubstr("steps 1 to " + std::to_string(views->front().commits.back().steps) + " are in commit"));
  }
}

}  // namespace
}  // namespace sluice::tools
