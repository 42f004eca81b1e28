#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>

#include "made_store.hpp"
#include "run_command.hpp"
#include "store/store_reader.hpp"
#include "store_damage.hpp"
#include "tools/claimed_store.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

struct PolicyAndRule {
  Policy policy = Policy::kBf16Split;
  Optimizer rule;

  std::string name() const { return fmt::format("{}_{}", policy_name(policy), kind_of(rule).name); }
  friend std::ostream& operator<<(std::ostream& out, const PolicyAndRule& one) { return out << one.name(); }
};

/// All that go together, with numbers that are not the rule's own.
std::vector<PolicyAndRule> all_pairs() {
  std::vector<PolicyAndRule> pairs;
  for (const Policy policy : policies())
    for (const OptimizerKind& kind : optimizer_kinds()) {
      if (policy == Policy::kFrozen || !validate(policy, kind.defaults).ok()) continue;
      Optimizer rule = kind.defaults;
      kind.numbers.front().set(rule, 0.0123);  // lr
      if (Sgd* sgd = std::get_if<Sgd>(&rule)) sgd->momentum = 0.9, sgd->nesterov = true;
      pairs.push_back({policy, rule});
    }
  return pairs;
}

/// A store after two steps and a commit, and a place for files and for another store.
class PolicyFiles : public ::testing::TestWithParam<PolicyAndRule> {
 protected:
  PolicyFiles() {
    MadeStore made(MadeStore::options({store_.path()}), GetParam().policy, make_single_communicator(),
                   GetParam().rule);
    made.step();
    made.step();
    commit_ = made.commit("mine");
    state_ = made.state();
    made.close();
  }
  /// Every byte of every plane, scales included, by parameter and plane.
  static std::map<std::string, std::vector<std::byte>> planes_in(const std::string& directory) {
    std::map<std::string, std::vector<std::byte>> planes;
    auto claimed = ClaimedStore::claim({directory}, std::nullopt);
    EXPECT_TRUE(claimed.ok()) << claimed.status().to_string();
    auto reader = (*claimed)->open((*claimed)->choice().commit);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    const auto& parameters = (*reader)->parameters();
    for (std::uint32_t i = 0; i < parameters.size(); ++i)
      for (const store::PlaneFormat& format : parameters[i].planes) {
        std::vector<std::byte>& bytes =
            planes[fmt::format("{} {}", parameters[i].name, store::plane_name(format.plane))];
        bytes.resize(format.bytes(parameters[i].elements));
        const Status status = (*reader)->read(i, format.plane, {0, parameters[i].elements}, bytes.data());
        EXPECT_TRUE(status.ok()) << status.to_string();
      }
    return planes;
  }
  static CommandResult run(std::vector<std::string> arguments) { return run_command(arguments); }

  const ScratchDirectory store_, files_, other_;
  std::uint64_t commit_ = 0;
  StateValues state_;
};

TEST_P(PolicyFiles, ComeBackBitForBit) {
  const std::string file = files_.path() + "/m.safetensors";
  const CommandResult exported =
      run({"export", "--json", "--dir", store_.path(), "--to", file, "--optimizer"});
  ASSERT_EQ(exported.exit_code, 0) << exported.errors;
  const CommandResult imported =
      run({"import", "--json", "--from", file, "--dir", other_.path(), "--chunk-elements", "16384",
           "--host-memory", "8MiB", "--threads", "1"});
  ASSERT_EQ(imported.exit_code, 0) << imported.errors;
  EXPECT_EQ(planes_in(other_.path()), planes_in(store_.path()));

  MadeStore again(MadeStore::options({other_.path()}), GetParam().policy, make_single_communicator(),
                  GetParam().rule);
  ASSERT_TRUE(again.seal().recovered.has_value());
  EXPECT_FALSE(again.seal().recovered->rewritten);
  EXPECT_TRUE(again.seal().recovered->differences.empty())
      << ::testing::PrintToString(again.seal().recovered->differences);
  EXPECT_EQ(again.state(), state_);
  const Optimizer& rule = again.seal().recovered->groups[0].optimizer;
  ASSERT_EQ(rule.index(), GetParam().rule.index());
  for (const OptimizerNumber& number : kind_of(rule).numbers)
    EXPECT_EQ(number.get(rule), number.get(GetParam().rule)) << number.name;
  again.close();
}

TEST_P(PolicyFiles, AreInspectedByNameAndSize) {
  const CommandResult result = run({"inspect", "--json", "--dir", store_.path()});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr(policy_name(GetParam().policy)));
  const nlohmann::json json = result.json();
  const nlohmann::json& embedding = json.at("stores")[0].at("parameters")[0];
  EXPECT_EQ(embedding.at("policy"), policy_name(GetParam().policy));
  EXPECT_EQ(embedding.at("optimizer"), kind_of(GetParam().rule).name);
  std::uint64_t bytes = 0;
  std::vector<std::string> names;
  for (const auto& format : store::planes_of(GetParam().policy, GetParam().rule, DType::kBF16)) {
    bytes += format.bytes(300 * 100);
    names.emplace_back(store::plane_name(format.plane));
  }
  EXPECT_EQ(embedding.at("bytes"), bytes);
  EXPECT_EQ(embedding.at("plane_names"), nlohmann::json(names));
}

TEST_P(PolicyFiles, AreVerifiedInEveryPlane) {
  const auto formats = store::planes_of(GetParam().policy, GetParam().rule, DType::kBF16);
  for (std::size_t plane = 0; plane < formats.size(); ++plane) {
    const PlaneByte byte = find_plane_byte(store_.path(), commit_, "deep", 33'333, plane);
    flip(byte);
    const CommandResult result = run({"verify", "--json", "--dir", store_.path()});
    EXPECT_EQ(result.exit_code, 1);
    const nlohmann::json json = result.json();
    const nlohmann::json& bad = json.at("commits")[0].at("bad");
    ASSERT_GE(bad.size(), 1U);
    EXPECT_EQ(bad[0].at("plane"), store::plane_name(formats[plane].plane));
    flip(byte);
  }
  EXPECT_EQ(run({"verify", "--dir", store_.path()}).exit_code, 0);
}

INSTANTIATE_TEST_SUITE_P(AndRules, PolicyFiles, ::testing::ValuesIn(all_pairs()),
                         [](const auto& pair) { return pair.param.name(); });

/// Stores that are exported with one policy and imported with another.
class PolicyChange : public ::testing::Test {};

TEST_F(PolicyChange, KeepsMastersAndCountsAndWhatTheNewPolicyKeepsOfMoments) {
  const ScratchDirectory store, files;
  MadeStore made(MadeStore::options({store.path()}), Policy::kMoments8);
  made.step();
  made.commit();
  const StateValues state = made.state();
  made.close();
  const std::string file = files.path() + "/m.safetensors";
  ASSERT_EQ(run_command({"export", "--dir", store.path(), "--to", file, "--optimizer"}).exit_code, 0);
  for (const Policy policy : {Policy::kBf16Split, Policy::kFp32, Policy::kFp16Master, Policy::kMoments8}) {
    const ScratchDirectory other;
    const std::string word(policy_name(policy));
    const CommandResult imported = run_command({"import", "--from", file, "--dir", other.path(), "--policy",
                                                word, "--chunk-elements", "16384", "--host-memory", "8MiB"});
    ASSERT_EQ(imported.exit_code, 0) << imported.errors;
    MadeStore again(MadeStore::options({other.path()}), policy);
    const StateValues values = again.state();
    again.close();
    for (const std::string name : {"embedding", "deep"})
      for (const std::string view : {" master", " moment1", " moment2", " count"})
        EXPECT_EQ(values.at(name + view), state.at(name + view)) << word << ": " << name << view;
  }
}

TEST_F(PolicyChange, ToOneThatTheRuleDoesNotGoWithIsBadUsage) {
  const ScratchDirectory store, files, other;
  MadeStore made(MadeStore::options({store.path()}), Policy::kFp32, make_single_communicator(), Adagrad{});
  made.commit();
  made.close();
  const std::string file = files.path() + "/m.safetensors";
  ASSERT_EQ(run_command({"export", "--dir", store.path(), "--to", file, "--optimizer"}).exit_code, 0);
  const CommandResult refused =
      run_command({"import", "--from", file, "--dir", other.path(), "--policy", "moments8"});
  EXPECT_EQ(refused.exit_code, 2) << refused.errors;
  EXPECT_THAT(refused.errors, HasSubstr("adagrad"));
  EXPECT_TRUE(other.names().empty());
}

}  // namespace
}  // namespace sluice::tools
