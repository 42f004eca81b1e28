#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "engine/small_engine.hpp"

namespace sluice::sim {

/// An engine whose store keeps commits, opened again as often as a test likes.
class CommitTest : public EngineTest {
 protected:
  static constexpr std::uint64_t kElements = 3 * kChunk + 5;  // four chunks

  CommitTest() {
    options.keep_commits = 1;
    options.max_user_bytes = 1000;
  }

  /// Registers and seals a model of one trained parameter of four chunks and a frozen one.
  void open() {
    make();
    it = add("it", {dim(kElements)}, {.name = "trained", .optimizer = kShowsGradient});
    frozen = add("frozen", {100}, {.name = "frozen", .policy = Policy::kFrozen}, Constant{3});
    report = seal();
  }
  /// As few frames as the engine accepts, so that every record lives on the drive.
  void open_out_of_core() {
    options.host_budget_bytes = kUnlimited;
    open();
    ASSERT_GT(report.resident_chunks, 0U);
    options.host_budget_bytes = report.least_host_bytes;
    ASSERT_THAT(engine->close(), IsOk());
    open();
    ASSERT_EQ(report.resident_chunks, 0U);
  }
  void clear_drive() {
    engine.reset();
    std::filesystem::remove_all(options.directories.front());
    std::filesystem::create_directory(options.directories.front());
  }
  /// Ends the engine and opens what it left.
  void reopen() {
    ASSERT_THAT(engine->close(), IsOk());
    open();
  }
  StepResult step_by(float gradient) { return train(it, Values(kElements, gradient)); }
  static std::vector<std::byte> bytes(std::string_view text) {
    const auto all = std::as_bytes(std::span(text));
    return {all.begin(), all.end()};
  }
  void commit(std::string_view user_bytes = "") {
    EXPECT_THAT(engine->commit(bytes(user_bytes), CommitMode::kWait), IsOk());
  }
  CommitTicket begin_commit() {
    const Result<CommitTicket> ticket = engine->commit();
    EXPECT_THAT(ticket, IsOk());
    return ticket.ok() ? *ticket : CommitTicket();
  }

  ParameterId it, frozen;
  SealReport report;
};

}  // namespace sluice::sim
