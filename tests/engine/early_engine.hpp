#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/small_engine.hpp"

namespace sluice::sim {

/// An engine with its records on the drive, whose parameters of one chunk each get their gradients from the last to the
/// first, and the few verbs of the tests of updates during backward.
class EarlyTest : public EngineTest {
 protected:
  static constexpr std::size_t kCount = 6;
  /// Three record frames, three gradient frames (the others are spilled), two weight frames.
  static constexpr std::uint64_t kLeast = 3 * kChunk * 16 + 2 * kChunk * 2;
  /// A gradient frame for every chunk, and some more for weights.
  static constexpr std::uint64_t kNoSpill = kLeast + (kCount - 3) * kChunk * 4 + 4 * kChunk * 2;
  static constexpr std::uint64_t kRecord = kChunk * 12;  // bytes of one chunk
  static constexpr AdamW kRule{.lr = 1e-2, .weight_decay = 0.1};

  void open(std::uint64_t host_budget_bytes = kNoSpill) {
    options.host_budget_bytes = host_budget_bytes;
    make();
    it.clear();
    for (std::size_t i = 0; i < kCount; ++i)
      it.push_back(add(fmt::format("p{}", i), {dim(kChunk)}, {.optimizer = kRule}));
    if (before_seal) before_seal();
    report = seal();
    if (options.undo == Undo::kOn && host_budget_bytes != kUnlimited) {
      EXPECT_EQ(report.resident_chunks, 0U);
      EXPECT_EQ(report.spilled_gradient_bytes > 0, host_budget_bytes == kLeast);
    }
    at_seal = engine->stats();
    begun_ = 0;
  }

  static constexpr std::int64_t kSlowNs = 1'000'000'000;
  /// From the next engine on requests of this kind take much longer than all else.
  void slow(io::Op slow_op) {
    house.drive_options.delay_ns = [slow_op](const io::Request& request, std::int64_t) {
      return request.op == slow_op ? kSlowNs : std::int64_t{1000};
    };
  }

  /// Lets `turns` things happen while the trainer does something else.
  void turn(int turns = 1) {
    for (int i = 0; i < turns; ++i) {
      house.world.step();
      // A call that changes nothing turns the loop.
      ASSERT_THAT(engine->update_group({0}, kRule), IsOk());
    }
  }
  /// As many as are needed until nothing happens any more.
  void let_all_happen() {
    while (!house.world.idle()) turn();
    turn(2);
    if (!house.world.idle()) let_all_happen();
  }

  static Values values(std::size_t parameter, std::uint64_t salt = 0) {
    Values all(kChunk);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] =
          static_cast<float>((i + 1) * (parameter * 7 + salt * 31 + 3) * 2654435761 % 100'003) * 1e-5F - 0.5F;
    return all;
  }
  /// One micro-batch's gradients.
  void backward(Pass& pass, std::uint64_t salt = 0) {
    for (std::size_t i = kCount; i-- > 0;) give(pass, it[i], values(i, salt));
  }
  /// A step whose early updates all end before step().
  StepResult train_early(const StepOptions& step_options = {}) {
    Pass pass = begin(step_options);
    for (std::uint32_t micro = 0; micro < std::max(step_options.micro_batches, 1U); ++micro)
      backward(pass, ++begun_);
    let_all_happen();
    return step(pass);
  }

  std::vector<std::vector<Values>> states() const {
    std::vector<std::vector<Values>> all;
    for (const ParameterId parameter : it) all.push_back(state(parameter));
    return all;
  }
  /// What a script leaves, with updates during backward and without. It begins with a new engine.
  void expect_the_bits_of_serial_steps(const std::function<void()>& script,
                                       std::uint64_t host_budget_bytes = kNoSpill) {
    SCOPED_TRACE(fmt::format("SLUICE_TEST_SEED={}", house.world.seed()));
    options.undo = Undo::kOff;  // nothing is early without undo
    open(host_budget_bytes);
    script();
    EXPECT_EQ(engine->stats().early_updates + engine->stats().redone_updates, 0U);
    const auto serial = states();
    options.undo = Undo::kOn;
    open(host_budget_bytes);
    script();
    EXPECT_EQ(states(), serial);
    expect_no_slot_lost();
  }
  /// Every chunk has two slots: a step of all of them at once finds none free if one is lost.
  void expect_no_slot_lost() {
    Pass pass = begin({.micro_batches = 0});
    backward(pass);
    EXPECT_THAT(pass.step(), IsOk());
  }

  std::uint64_t records_read() const { return engine->stats().record_bytes_read - at_seal.record_bytes_read; }
  std::uint64_t records_written() const {
    return engine->stats().record_bytes_written - at_seal.record_bytes_written;
  }

  std::vector<ParameterId> it;
  std::function<void()> before_seal;
  SealReport report;
  Stats at_seal;

 private:
  std::uint64_t begun_ = 0;
};

}  // namespace sluice::sim
