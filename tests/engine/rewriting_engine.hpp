#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/small_engine.hpp"

namespace sluice::sim {

/// A committed store that is opened again in another shape.
class RewriteTest : public EngineTest {
 protected:
  struct Parameter {
    std::string name;
    std::vector<std::int64_t> shape;
    Policy policy = Policy::kBf16Split;
  };
  using State = std::map<std::string, std::vector<Values>>;

  RewriteTest() {
    options.keep_commits = 1;
    options.max_user_bytes = 1000;
  }

  Result<SealReport> try_open() {
    make();
    ids_.clear();
    for (const Parameter& parameter : model)
      ids_[parameter.name] = add(parameter.name, parameter.shape,
                                 {.name = "g:" + parameter.name, .policy = parameter.policy}, Constant{2});
    for (const auto& [alias, of] : aliases) (void)tie(alias, ids_.at(of));
    return engine->seal();
  }
  void open() {
    const Result<SealReport> sealed = try_open();
    ASSERT_THAT(sealed, IsOk());
    report = *sealed;
  }
  /// A step with another gradient for each element.
  void step_all() {
    Pass pass = begin();
    float gradient = 0.001f;
    for (const Parameter& parameter : model) {
      if (parameter.policy == Policy::kFrozen) continue;
      std::uint64_t elements = 1;
      for (const std::int64_t extent : parameter.shape) elements *= static_cast<std::uint64_t>(extent);
      Values values(elements);
      for (float& value : values) value = gradient += 0.0001f;
      give(pass, ids_[parameter.name], values);
    }
    step(pass);
  }
  void commit() {
    EXPECT_THAT(engine->commit(std::vector<std::byte>(9, std::byte{5}), CommitMode::kWait), IsOk());
  }
  State state_of_all() {
    State all;
    for (const Parameter& parameter : model)
      all[parameter.name] = parameter.policy == Policy::kFrozen
                                ? std::vector<Values>{read(ids_[parameter.name], View::kWeight)}
                                : state(ids_[parameter.name]);
    return all;
  }
  /// Opens `model`, trains two steps, commits and closes. Returns the state.
  State make_committed() {
    open();
    step_all();
    step_all();
    commit();
    State all = state_of_all();
    EXPECT_THAT(engine->close(), IsOk());
    return all;
  }
  /// Opens again and expects the same state, rewritten, then once more, in place.
  void expect_rewritten(const State& expected) {
    open();
    if (HasFatalFailure()) return;
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_TRUE(report.recovered->rewritten);
    EXPECT_EQ(report.recovered->commit, 1U);
    EXPECT_EQ(report.recovered->step, 2U);
    EXPECT_EQ(report.recovered->user_bytes, std::vector<std::byte>(9, std::byte{5}));
    EXPECT_THAT(report.recovered->differences, testing::Not(testing::IsEmpty()));
    EXPECT_EQ(state_of_all(), expected);
    ASSERT_THAT(engine->close(), IsOk());
    EXPECT_EQ(stores(), 1U);
    open();
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_FALSE(report.recovered->rewritten);
    EXPECT_EQ(state_of_all(), expected);
    step_all();
    EXPECT_EQ(count(ids_[model.front().name]), 3U);
  }
  std::size_t stores() const {
    std::size_t entries = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(options.directories.front()))
      ++entries;
    return entries;
  }
  ParameterId id(const std::string& name) { return ids_.at(name); }

  std::vector<Parameter> model{{"a", {2, 20'000}},
                               {"b", {300}, Policy::kFp32},
                               {"c", {}, Policy::kBf16Split},
                               {"d", {40'000}, Policy::kFp32},
                               {"e", {7, 11}, Policy::kFrozen},
                               {"f", {0, 8}}};
  std::map<std::string, std::string> aliases;  // to the names of parameters
  SealReport report;

 private:
  std::map<std::string, ParameterId> ids_;
};

}  // namespace sluice::sim
