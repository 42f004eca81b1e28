#include <fcntl.h>
#include <unistd.h>

#include <variant>

#include "engine/policy_engine.hpp"
#include "store/drives.hpp"
#include "store/rank_image.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

using sim::Fails;
using sim::IsOk;
using sim::kept_as;
using sim::PolicyCase;
using sim::PolicyEngine;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

/// A store with commits, opened again by the same policy and rule or by others.
class PolicyStores : public PolicyEngine, public testing::WithParamInterface<PolicyCase> {
 protected:
  PolicyStores() { options.keep_commits = 1; }

  void commit() { EXPECT_THAT(engine->commit({}, CommitMode::kWait), IsOk()); }
  /// Two steps of the parameter's policy and rule, committed and closed. Returns: the state.
  State make_committed() {
    open(GetParam());
    step_all(0);
    step_all(1);
    commit();
    State state = state_of_all();
    EXPECT_THAT(engine->close(), IsOk());
    return state;
  }

  struct PlaneOfChunk {
    store::Plane plane = store::Plane::kWeight;
    std::string path;
    std::uint64_t offset = 0, bytes = 0;
  };
  /// The planes of a chunk as the newest commit names them.
  std::vector<PlaneOfChunk> planes_of(std::uint32_t chunk) const {
    Result<store::Drives> drives = store::Drives::open(options.directories, io::Access::kReadWrite);
    EXPECT_THAT(drives, IsOk());
    auto found =
        store::find_existing(drives->directories(), {.claim = store::Claim::kLook}, store::Owner::make());
    EXPECT_THAT(found, IsOk());
    const std::uint64_t number = found->front().commits.back().record.number;
    const auto image = store::RankImage::open(std::move(found->front()), number);
    EXPECT_THAT(image, IsOk());
    std::vector<PlaneOfChunk> planes;
    for (std::size_t plane = 0; plane < image->class_of(chunk).planes.size(); ++plane) {
      const store::StoredPlane stored = image->plane_of(chunk, plane);
      planes.push_back({stored.format.plane, stored.file->path(), stored.offset, stored.bytes()});
    }
    return planes;
  }
  static void flip(const PlaneOfChunk& plane, std::uint64_t at) {
    const int fd = ::open(plane.path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(fd, 0) << plane.path;
    const auto offset = static_cast<off_t>(plane.offset + at);
    std::byte byte{};
    EXPECT_EQ(::pread(fd, &byte, 1, offset), 1);
    byte ^= std::byte{1};
    EXPECT_EQ(::pwrite(fd, &byte, 1, offset), 1);
    EXPECT_EQ(::fsync(fd), 0);
    ::close(fd);
  }

  /// What opening it as `to` must make of this state.
  State rewritten(const PolicyCase& to, State from) const {
    const auto is_adam = [](const Optimizer& rule) {
      return std::holds_alternative<Adam>(rule) || std::holds_alternative<AdamW>(rule);
    };
    const bool keeps = (is_adam(GetParam().optimizer) && is_adam(to.optimizer)) ||
                       GetParam().optimizer.index() == to.optimizer.index();
    State state;
    for (auto& [name, views] : from) {
      std::vector<Values>& made = state[name];
      const Values& master = views[1];
      made = {kept_as(to, View::kWeight, master), master};
      std::size_t next = 2;  // of the views that there were
      for (const View view : {View::kMoment1, View::kMoment2}) {
        const Values* old = GetParam().has(view) ? &views[next++] : nullptr;
        if (!to.has(view)) continue;
        const bool alike = to.policy == GetParam().policy;
        const Values zeros(master.size());
        made.push_back(!old || !keeps ? zeros : alike ? *old : kept_as(to, view, *old));
      }
      made.push_back(keeps ? views.back() : Values{0});
    }
    return state;
  }
};

TEST_P(PolicyStores, ComeBackFromACommitAndGoOnAsIfNothingHadHappened) {
  open_out_of_core(GetParam());
  step_all(0);
  step_all(1);
  commit();
  const State committed = state_of_all();
  step_all(2);
  const State expected = state_of_all();
  ASSERT_THAT(engine->close(), IsOk());
  for (const std::uint64_t budget : {options.host_budget_bytes, kUnlimited}) {
    options.host_budget_bytes = budget;
    const SealReport report = open(GetParam());
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_FALSE(report.recovered->rewritten);
    EXPECT_THAT(report.recovered->differences, IsEmpty());
    EXPECT_EQ(state_of_all(), committed);
    step_all(2);
    EXPECT_EQ(state_of_all(), expected);
    engine.reset();  // without a commit
  }
}

TEST_P(PolicyStores, TellOfABitFlippedInAnyPlane) {
  open_out_of_core(GetParam());
  step_all(0);
  commit();
  const std::string name = fmt::format("'{}'", parameters.back().name);
  ASSERT_THAT(engine->close(), IsOk());
  constexpr std::uint32_t kChunkOfLast = 1;  // whole
  for (const PlaneOfChunk& plane : planes_of(kChunkOfLast)) {
    SCOPED_TRACE(store::plane_name(plane.plane));
    flip(plane, plane.bytes - 1);  // of a record that no failed step or write moves
    open(GetParam());
    const ParameterId it = parameters.back().id;
    const auto told = AllOf(HasSubstr(name), HasSubstr("checksum"));
    const bool of_first = plane.plane == store::Plane::kMoment1 || plane.plane == store::Plane::kScale1;
    const bool of_second = plane.plane == store::Plane::kMoment2 || plane.plane == store::Plane::kScale2;
    const View view = of_first ? View::kMoment1 : of_second ? View::kMoment2 : View::kMaster;
    float value = 0;
    const bool in_master = plane.plane != store::Plane::kWeight || GetParam().policy != Policy::kFp16Master;
    if (in_master) {
      EXPECT_THAT(engine->read(it, view, {kChunk, 1}, &value, DType::kF32), Fails(Code::kDataLoss, told));
    } else {
      EXPECT_THAT(engine->read(it, View::kWeight, {kChunk, 1}, &value, DType::kF32),
                  Fails(Code::kDataLoss, told));
    }
    {
      Pass pass = begin();
      give(pass, it, gradient_of(parameters.back(), 1));
      EXPECT_THAT(pass.step(), Fails(Code::kDataLoss, told));
    }
    const float zero = 0;
    EXPECT_THAT(engine->write(it, View::kMaster, {kChunk, 1}, &zero, DType::kF32),
                Fails(Code::kDataLoss, told));
    ASSERT_THAT(engine->close(), IsOk());
    flip(plane, plane.bytes - 1);
  }
}

TEST_P(PolicyStores, AreRewrittenForEveryOtherPolicyAndEveryOtherRule) {
  parameters = {{.name = "none"},
                {.name = "one", .elements = 1},
                {.name = "odd", .elements = 257},
                {.name = "chunks", .elements = kChunk + 300}};
  const State from = make_committed();
  const sim::TemporaryDirectory kept;
  const auto copy = [](const std::string& source, const std::string& target) {
    std::filesystem::copy(source, target, std::filesystem::copy_options::recursive);
  };
  copy(options.directories.front(), kept.path() + "/store");
  for (const PolicyCase& to : sim::policy_cases()) {
    SCOPED_TRACE(testing::Message() << "to " << to.name());
    const bool same_policy = to.policy == GetParam().policy;
    const bool same_rule = to.optimizer.index() == GetParam().optimizer.index();
    const bool first = to.name() == sim::policy_cases().front().name();  // both at once
    if (!same_policy && !same_rule && !first) continue;
    clear_drive();
    std::filesystem::remove(options.directories.front());
    copy(kept.path() + "/store", options.directories.front());
    const State expected = rewritten(to, from);
    const SealReport report = open(to);
    ASSERT_TRUE(report.recovered.has_value());
    EXPECT_EQ(report.recovered->rewritten, !same_policy || !same_rule);
    EXPECT_EQ(report.recovered->step, 2U);
    EXPECT_EQ(state_of_all(), expected);
    const auto names = [](std::string_view now, std::string_view before) {
      return Contains(AllOf(HasSubstr("'odd'"), HasSubstr(std::string(now)), HasSubstr(std::string(before))));
    };
    if (!same_policy) {
      EXPECT_THAT(report.recovered->differences,
                  names(policy_name(to.policy), policy_name(GetParam().policy)));
    }
    if (!same_rule) {
      EXPECT_THAT(report.recovered->differences,
                  names(kind_of(to.optimizer).name, kind_of(GetParam().optimizer).name));
      const bool shared = expected.at("odd").back()[0] > 0;
      EXPECT_THAT(
          report.recovered->differences,
          Contains(AllOf(HasSubstr("'odd' has optimizer"), HasSubstr(shared ? "are kept" : "start anew"))));
    }
    step_all(2);
    EXPECT_EQ(count(parameters[2].id), expected.at("odd").back()[0] + 1);
    ASSERT_THAT(engine->close(), IsOk());
  }
}

TEST_P(PolicyStores, KeepEveryBitInOtherChunks) {
  options.chunk_elements = 32 << 10;
  const State expected = make_committed();
  options.chunk_elements = 16 << 10;
  const SealReport report = open(GetParam());
  ASSERT_TRUE(report.recovered.has_value());
  EXPECT_TRUE(report.recovered->rewritten);
  EXPECT_EQ(state_of_all(), expected);
}

INSTANTIATE_TEST_SUITE_P(AndRules, PolicyStores, testing::ValuesIn(sim::policy_cases()), sim::name_of);

}  // namespace
}  // namespace sluice
