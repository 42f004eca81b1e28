#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <random>
#include <string_view>

#include "engine/plain_model.hpp"
#include "engine/sim_engine.hpp"
#include "engine/training.hpp"
#include "io/drive_profile.hpp"
#include "kernels/convert.hpp"
#include "support/after_crash.hpp"

namespace sluice {
namespace {

using sim::PlainModel;

/// What was committed: the state, and what the trainer said with it.
struct Version {
  std::uint64_t number = 0;
  PlainModel model;
  std::vector<std::byte> user_bytes;
  CommitTicket ticket;
  bool known_durable = false;  // when the crash came
};

/// The life of one store through several engines: each trains, commits and ends by a crash, a fault or a close; the
/// next one must go on from the last commit that was durable, or from a later one that was begun.
class StoreLife {
 public:
  explicit StoreLife(std::uint64_t seed) : seed_(seed), random_(seed ^ 0xc4a5) {
    const std::array<std::uint64_t, 7> sizes{1, 300, 5000, 16384, 16385, 20000, 40000};
    const std::uint64_t tensors = 1 + below(3);
    for (std::uint64_t i = 0; i < tensors; ++i)
      first_.add(fmt::format("t{}", i), sizes[below(sizes.size())],
                 chance(0.15) ? Policy::kFrozen : Policy::kBf16Split, GradientStorage::kFp32,
                 AdamW{.lr = 1e-2, .weight_decay = 0.1});
    options_.max_user_bytes = 2000;
    options_.device_budget_bytes = kUnlimited;
    options_.io.piece_bytes = 4096U << below(8);
    for (int drive = 0; drive < 2; ++drive)
      paths_.push_back(&directories_.emplace_back(sim::Beneath::kMemory));
    if (chance(0.5)) measure_drives();
    draw_shape();
  }

  void run() {
    for (int generation = 0; generation < 3 && !testing::Test::HasFailure(); ++generation) {
      house_ = std::make_unique<sim::SimHouse>(seed_ * 16 + static_cast<std::uint64_t>(generation),
                                               sim::Beneath::kMemory);
      if (generation > 0 && chance(0.4)) draw_shape();
      live();
      engine_.reset();
      house_.reset();
    }
    house_ = std::make_unique<sim::SimHouse>(seed_ * 16 + 15, sim::Beneath::kMemory);
    ending_ = Ending::kClose;
    const Status opened = open();
    EXPECT_TRUE(opened.ok()) << opened.to_string();
    engine_.reset();
  }

 private:
  enum class Ending { kClose, kCrash };

  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(double probability) { return static_cast<double>(random_() >> 11) * 0x1p-53 < probability; }

  /// So that they take unequal shares.
  void measure_drives() {
    for (const sim::TemporaryDirectory* path : paths_) {
      const io::DriveProfile profile{
          .settings = {.piece_bytes = 4096U << below(8), .depth = 1 + static_cast<std::uint32_t>(below(32))},
          .mixed_bytes_per_s = static_cast<double>(1 + below(10)) * 1e8,
          .measured_by = "probe",
          .measured_on = "2026-11-30"};
      EXPECT_TRUE(
          io::save_profile(io::Directory::open(path->path(), io::Access::kReadWrite).value(), profile).ok());
    }
  }

  /// What a store that is there is rewritten for.
  void draw_shape() {
    options_.chunk_elements = chance(0.6) ? 16 << 10 : 32 << 10;
    options_.keep_commits = 1 + static_cast<std::uint32_t>(below(3));
    options_.undo = chance(0.7) ? Undo::kOn : Undo::kOff;
    drives_ = 1 + below(2);
    swapped_ = chance(0.5);
    for (sim::PlainTensor& tensor : first_.tensors)
      if (tensor.policy != Policy::kFrozen) convert(tensor, chance(0.3) ? Policy::kFp32 : Policy::kBf16Split);
  }

  static void convert(sim::PlainTensor& tensor, Policy policy) {
    if (tensor.policy == policy) return;
    tensor.policy = policy;
    if (policy == Policy::kFp32) {
      tensor.weight32.resize(tensor.elements);
      kernels::join_bf16_split(tensor.weight32.data(), tensor.weight16.data(), tensor.residual.data(),
                               tensor.elements);
    } else {
      tensor.weight16.resize(tensor.elements);
      tensor.residual.resize(tensor.elements);
      kernels::split_bf16(tensor.weight16.data(), tensor.residual.data(), tensor.weight32.data(),
                          tensor.elements);
    }
  }

  Status make() {
    SLUICE_ASSIGN_OR_RETURN(engine_, house_->make_engine(options_));
    SLUICE_ASSIGN_OR_RETURN(parameters_, register_with(*engine_, first_));
    return {};
  }

  /// As a refusal says it, before anything is opened.
  std::uint64_t least_host_bytes() {
    options_.host_budget_bytes = 1;
    Status refused = make();
    if (refused.ok()) refused = engine_->seal().status();
    constexpr std::string_view kBefore = "the smallest that would do is ";
    const std::size_t at = refused.message().find(kBefore);
    EXPECT_NE(at, std::string::npos) << refused.to_string();
    return at == std::string::npos
               ? kUnlimited
               : std::strtoull(refused.message().c_str() + at + kBefore.size(), nullptr, 10);
  }

  Status open() {
    std::vector<std::string> paths{paths_[0]->path(), paths_[1]->path()};
    if (swapped_) std::swap(paths[0], paths[1]);
    const auto split = paths.begin() + static_cast<std::ptrdiff_t>(drives_);
    options_.directories.assign(paths.begin(), split);
    options_.recover_directories.assign(split, paths.end());
    options_.host_budget_bytes = chance(0.5) ? kUnlimited : least_host_bytes();
    SLUICE_RETURN_IF_ERROR(make());
    SLUICE_ASSIGN_OR_RETURN(const SealReport report, engine_->seal());
    check_recovered(report);
    return {};
  }

  void check_recovered(const SealReport& report) {
    if (!report.recovered) {
      for (const Version& version : versions_)
        EXPECT_FALSE(version.known_durable) << "commit " << version.number << " is lost";
      model_ = first_;
      versions_.clear();
    } else {
      const auto found = std::ranges::find(versions_, report.recovered->commit, &Version::number);
      ASSERT_NE(found, versions_.end()) << "commit " << report.recovered->commit << " was never begun";
      for (auto later = found + 1; later != versions_.end(); ++later)
        EXPECT_FALSE(later->known_durable) << "went on from " << found->number << " before " << later->number;
      EXPECT_EQ(report.recovered->user_bytes, found->user_bytes);
      model_ = found->model;
      for (std::size_t tensor = 0; tensor < model_.tensors.size(); ++tensor)
        convert(model_.tensors[tensor], first_.tensors[tensor].policy);
      versions_.erase(found + 1, versions_.end());
      versions_.back().known_durable = true;
    }
    const std::string differs = compare(*engine_, model_, parameters_);
    // The drive may have stopped, or a fault struck, while the state was read.
    const bool unread =
        differs.find("IoError") != std::string::npos && (crashed_ || house_->backend->faults().hits() > 0);
    if (!unread) {
      EXPECT_EQ(differs, "");
    }
  }

  /// One engine's life. Every call may fail once the drive is gone or a fault has struck.
  void live() {
    ending_ = chance(0.8) ? Ending::kCrash : Ending::kClose;
    const sim::Crash kind = chance(0.5) ? sim::Crash::kPowerLost : sim::Crash::kProcessKilled;
    crashed_ = broken_ = false;
    copies_.clear();
    if (chance(0.3)) add_fault();
    if (ending_ == Ending::kCrash)
      house_->world.post([this, kind] { crash(kind); }, static_cast<std::int64_t>(below(40'000'000)));
    const Status opened = open();
    if (opened.ok()) {
      for (std::uint64_t i = 0; i < 8 && alive(); ++i) act();
      if (!crashed_) note_durable();
      if (ending_ == Ending::kCrash && !crashed_) crash(kind);
    }
    engine_.reset();
    if (crashed_) move_to_copies();
  }

  bool alive() { return !crashed_ && !broken_ && !testing::Test::HasFailure(); }

  void add_fault() {
    const std::array<sim::Fault, 5> kinds{{{.op = io::Op::kWrite, .error = EIO},
                                           {.op = io::Op::kWrite, .error = ENOSPC},
                                           {.op = io::Op::kFlush, .error = EIO},
                                           {.op = io::Op::kRead, .error = EIO},
                                           {.op = io::Op::kWrite, .error = sim::Fault::kShort}}};
    sim::Fault fault = kinds[below(kinds.size())];
    fault.skip = below(40);
    fault.count = 1 + below(2);
    house_->faults.push_back(fault);
  }

  void crash(sim::Crash kind) {
    if (crashed_ || house_->backend == nullptr) return;
    crashed_ = true;
    note_durable();
    house_->backend->crash(kind);
    for (const sim::TemporaryDirectory* path : paths_)
      sim::copy_after_crash(path->path(), copies_.emplace_back(sim::Beneath::kMemory).path());
  }
  void move_to_copies() {
    directories_.swap(copies_);
    paths_.clear();
    for (const sim::TemporaryDirectory& directory : directories_) paths_.push_back(&directory);
  }
  void note_durable() {
    for (Version& version : versions_)
      if (version.ticket.number() != 0 && version.ticket.done() && version.ticket.wait().ok())
        version.known_durable = true;
  }

  void act() {
    if (chance(0.4))
      commit();
    else if (chance(0.15))
      write();
    else
      train();
  }

  void train() {
    const StepOptions options{.micro_batches = 1};
    Result<Pass> pass = engine_->begin_step(options);
    if (!pass.ok()) return fail();
    ++steps_;
    for (std::size_t tensor = 0; tensor < model_.tensors.size(); ++tensor) {
      if (model_.tensors[tensor].policy == Policy::kFrozen) continue;
      const std::vector<float> values =
          sim::gradient_values(steps_, 0, tensor, model_.tensors[tensor].elements);
      if (!pass->add_gradient(parameters_[tensor], Gradient::f32(values.data())).ok()) {
        model_.abort();
        return fail();
      }
      model_.add_gradient(static_cast<std::uint32_t>(tensor), values.data(), DType::kF32);
    }
    const Result<StepResult> result = pass->step();
    if (result.ok()) {
      (void)model_.step(options);
    } else {
      model_.abort();
      fail();
    }
  }

  void write() {
    const auto tensor = below(model_.tensors.size());
    sim::PlainTensor& of = model_.tensors[tensor];
    const std::vector<float> values = sim::gradient_values(++steps_, 1, tensor, of.elements);
    const View view = of.policy == Policy::kFrozen ? View::kWeight : View::kMaster;
    if (!engine_->write(parameters_[tensor], view, {0, of.elements}, values.data(), DType::kF32).ok())
      return fail();
    if (of.policy == Policy::kFrozen)
      kernels::f32_to_bf16(of.weight16.data(), values.data(), of.elements);
    else if (of.policy == Policy::kBf16Split)
      kernels::split_bf16(of.weight16.data(), of.residual.data(), values.data(), of.elements);
    else
      of.weight32 = values;
  }

  void commit() {
    Version version;
    version.model = model_;
    version.user_bytes.resize(below(2000));
    for (std::byte& byte : version.user_bytes) byte = static_cast<std::byte>(random_());
    const Result<CommitTicket> ticket = engine_->commit(version.user_bytes);
    if (!ticket.ok()) return fail();
    version.number = ticket->number();
    version.ticket = *ticket;
    // A number that a failed commit had before the last recovery may come again.
    std::erase_if(versions_, [&](const Version& earlier) { return earlier.number == version.number; });
    versions_.push_back(std::move(version));
    if (chance(0.3) && !ticket->wait().ok()) fail();
  }

  /// After a failure the engine goes on if it can, once it has told of a commit; a broken one answers every call with
  /// its cause.
  void fail() {
    if (!engine_->begin_pass("alive?").ok() && !engine_->begin_pass("alive?").ok()) broken_ = true;
  }

  const std::uint64_t seed_;
  std::mt19937_64 random_;
  PlainModel first_, model_;
  std::uint64_t drives_ = 1;
  bool swapped_ = false;  // the order of the directories
  std::deque<sim::TemporaryDirectory> directories_, copies_;
  std::vector<const sim::TemporaryDirectory*> paths_;
  EngineOptions options_;
  std::unique_ptr<sim::SimHouse> house_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> parameters_;
  std::deque<Version> versions_;  // ascending in number
  Ending ending_ = Ending::kClose;
  bool crashed_ = false;
  bool broken_ = false;
  std::uint64_t steps_ = 0;
};

class RandomCrashes : public testing::TestWithParam<int> {};

TEST_P(RandomCrashes, LeaveTheLastCommitOrALaterOneWhole) {
  for (std::uint64_t life = 0; life < 50; ++life) {
    const std::uint64_t seed = sim::seed_or(static_cast<std::uint64_t>(GetParam()) * 50 + life);
    SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
    StoreLife(seed).run();
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCrashes, testing::Range(0, 40));

/// Two commits with steps around them over a drive that fails at one request.
struct FailingRequest {
  io::Op op;
  int error;
};
class EveryRequest : public testing::TestWithParam<std::tuple<FailingRequest, Undo, bool>> {};

TEST_P(EveryRequest, ThatFailsLeavesTheLastCommitOrAnError) {
  const auto [failing, undo, out_of_core] = GetParam();
  const auto [op, error] = failing;
  std::uint64_t failures = 0;
  for (std::uint64_t skip = 0;; ++skip) {
    SCOPED_TRACE(fmt::format("request {} fails", skip));
    sim::SimHouse house(skip + 1, sim::Beneath::kMemory);
    const sim::PlainModel first = sim::small_model();
    EngineOptions options{.directories = {house.directory.path()},
                          .host_budget_bytes = kUnlimited,
                          .device_budget_bytes = kUnlimited,
                          .chunk_elements = 16 << 10,
                          .keep_commits = 1,
                          .max_user_bytes = 100,
                          .undo = undo};
    if (out_of_core) {
      Result<EngineOptions> least = sim::least_budgets(options, first);
      ASSERT_TRUE(least.ok()) << least.status().to_string();
      options = *least;
    }
    house.faults = {{.op = op, .error = error, .skip = skip, .count = 1}};
    std::vector<PlainModel> committed;  // by number, from 1
    std::uint64_t durable = 0;
    std::uint64_t hits = 0;
    {
      PlainModel model = first;
      Result<std::unique_ptr<Engine>> made = house.make_engine(options);
      ASSERT_TRUE(made.ok());
      const std::unique_ptr<Engine> engine = std::move(made).value();
      const std::vector<ParameterId> parameters = *register_with(*engine, model);
      const bool is_sealed = engine->seal().ok();
      if (is_sealed) {
        for (std::uint64_t step = 0; step < 3; ++step) {
          Result<Pass> pass = engine->begin_step();
          if (!pass.ok()) break;
          Status status;
          for (std::size_t tensor = 0; tensor < model.tensors.size() && status.ok(); ++tensor) {
            if (!sim::contributes(model.tensors[tensor], 0)) continue;
            const std::vector<float> values =
                sim::gradient_values(step, 0, tensor, model.tensors[tensor].elements);
            status = pass->add_gradient(parameters[tensor], Gradient::f32(values.data()));
          }
          if (status.ok()) status = pass->step().status();
          if (status.ok()) (void)sim::step_model(model, step, {});
          if (status.ok() || undo == Undo::kOn) {
            EXPECT_TRUE(!status.ok() || compare(*engine, model, parameters) == "" ||
                        house.backend->faults().hits() > 0);
          }
          if (step == 2) break;
          const Result<CommitTicket> ticket = engine->commit();
          if (!ticket.ok()) continue;
          committed.resize(ticket->number(), model);
          committed.back() = model;
          if (ticket->wait().ok()) durable = ticket->number();
        }
      }
      // A seal() that failed has taken its backend with it.
      hits = is_sealed ? house.backend->faults().hits() : 1;
      (void)engine->close();
    }
    house.faults.clear();
    PlainModel model = first;
    Result<std::unique_ptr<Engine>> made = house.make_engine(options);
    ASSERT_TRUE(made.ok());
    const std::unique_ptr<Engine> engine = std::move(made).value();
    const std::vector<ParameterId> parameters = *register_with(*engine, model);
    const Result<SealReport> report = engine->seal();
    ASSERT_TRUE(report.ok()) << report.status().to_string();
    const std::uint64_t recovered = report->recovered ? report->recovered->commit : 0;
    EXPECT_GE(recovered, durable);
    ASSERT_LE(recovered, committed.size());
    EXPECT_EQ(compare(*engine, recovered == 0 ? first : committed[recovered - 1], parameters), "");
    if (hits == 0) break;
    ++failures;
    if (HasFailure()) return;
  }
  // Records that stay in memory are never read.
  if (op != io::Op::kRead || out_of_core) {
    EXPECT_GT(failures, 3U);
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, EveryRequest,
                         testing::Combine(testing::Values(FailingRequest{io::Op::kWrite, EIO},
                                                          FailingRequest{io::Op::kWrite, ENOSPC},
                                                          FailingRequest{io::Op::kFlush, EIO},
                                                          FailingRequest{io::Op::kRead, EIO}),
                                          testing::Values(Undo::kOn, Undo::kOff), testing::Bool()));

}  // namespace
}  // namespace sluice
