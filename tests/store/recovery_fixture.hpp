#pragma once

#include <fstream>
#include <numeric>
#include <optional>
#include <utility>

#include "store/choice.hpp"
#include "store/commit_record.hpp"
#include "store_fixture.hpp"

namespace sluice::store {

/// Stores that keep two commits on as many drives as a test wants, with commit records as an engine would
/// write them.
class RecoveryTest : public StoreTest {
 protected:
  RecoveryTest() {
    options_.keep_commits = 2;
    options_.record_bytes_max = 5000;
    options_.parameters = parameters_;
    options_.spilled_gradient_slots = 0;
    use_drives(1);
  }

  void use_drives(std::uint32_t count) {
    paths_.clear();
    for (std::uint32_t drive = 0; drive < count; ++drive) {
      paths_.push_back(path(std::string(1, static_cast<char>('a' + drive))));
      fs::create_directories(paths_.back());
    }
  }
  std::string data_path(std::uint32_t drive) const {
    return paths_[drive] + "/store-0000000000000abc/rank-00000/data";
  }

  CommitRecord record_of(Store& store, std::uint64_t number, const std::vector<io::Place>& places) const {
    CommitRecord record;
    record.volume_id = store.superblock().volume_id;
    record.store_id = store.superblock().store_id;
    record.rank = store.superblock().rank;
    record.world = store.superblock().world;
    record.number = number;
    record.steps = 10 * number;
    record.groups = {{"stepped", AdamW{}}, {"frozen", AdamW{}}};
    record.step_counts = {10 * number, 0};
    for (std::size_t chunk = 0; chunk < places.size(); ++chunk) {
      record.chunks.push_back({places[chunk], {number}});
    }
    record.user_bytes.assign(2000, static_cast<std::byte>(number));
    return record;
  }

  void write_record(Store& store, const CommitRecord& record, std::uint32_t place,
                    const std::vector<std::uint32_t>& drives) const {
    std::vector<std::byte> bytes(store.superblock().place_bytes);
    encode(record, bytes);
    for (const std::uint32_t drive : drives) {
      const Status status = store.data(drive).write_exact(store.place_offset(place), bytes);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  void write_record(Store& store, const CommitRecord& record, std::uint32_t place) const {
    std::vector<std::uint32_t> all(store.drive_count());
    std::iota(all.begin(), all.end(), 0u);
    write_record(store, record, place, all);
  }

  /// Commits that follow each other, from place 0 on: each has stepped records of its own, the frozen one
  /// stays.
  std::vector<CommitRecord> commit(Store& store, const std::vector<std::uint64_t>& numbers) const {
    std::vector<CommitRecord> records;
    const io::Place frozen = *store.acquire_slot(3);
    for (const std::uint64_t number : numbers) {
      std::vector<io::Place> places;
      for (std::uint32_t chunk = 0; chunk < 3; ++chunk) places.push_back(*store.acquire_slot(chunk));
      places.push_back(frozen);
      const auto place = static_cast<std::uint32_t>(records.size() % store.superblock().place_count);
      records.push_back(record_of(store, number, places));
      write_record(store, records.back(), place);
    }
    return records;
  }
  void set_committed(Store& store, std::uint32_t drive) const {
    std::vector<std::byte> bytes(store.superblock().grid_bytes);
    store.encode_superblock(drive, Committed::kYes, bytes);
    ASSERT_TRUE(store.data(drive).write_exact(0, bytes).ok());
  }
  /// What a run leaves that has made these commits.
  std::vector<CommitRecord> leave_run(const std::vector<std::uint64_t>& numbers) const {
    auto store = created(options_);
    std::vector<CommitRecord> records = commit(*store, numbers);
    for (std::uint32_t drive = 0; drive < store->drive_count(); ++drive) set_committed(*store, drive);
    store->keep();
    EXPECT_TRUE(store->close().ok());
    return records;
  }

  Result<std::vector<ExistingRank>> find(const FindOptions& options = {}) const {
    const auto access = options.claim == Claim::kLock ? io::Access::kReadWrite : io::Access::kReadOnly;
    SLUICE_ASSIGN_OR_RETURN(const Drives drives, Drives::open(paths_, access));
    SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
    return find_existing(drives.directories(), options, Owner::make());
  }
  /// Requires: there is one rank's.
  ExistingRank found(const FindOptions& options = {}) const {
    auto ranks = find(options);
    EXPECT_TRUE(ranks.ok()) << ranks.status().to_string();
    EXPECT_EQ(ranks->size(), 1u);
    return std::move(ranks->at(0));
  }
  static Result<std::optional<Choice>> choose(const std::vector<ExistingRank>& ranks,
                                              std::optional<std::uint64_t> wanted = std::nullopt) {
    std::vector<RankSummary> summaries;
    for (const ExistingRank& rank : ranks) summaries.push_back(summarize(rank));
    return choose_store(summaries, wanted);
  }
  /// As an engine that starts again with what it had.
  Result<std::unique_ptr<Store>> recover(std::optional<std::uint64_t> wanted = std::nullopt) const {
    SLUICE_ASSIGN_OR_RETURN(const Drives drives, Drives::open(paths_, io::Access::kReadWrite));
    SLUICE_ASSIGN_OR_RETURN(const auto guards, drives.guard());
    SLUICE_ASSIGN_OR_RETURN(std::vector<ExistingRank> ranks,
                            find_existing(drives.directories(), {}, Owner::make()));
    SLUICE_ASSIGN_OR_RETURN(const std::optional<Choice> choice, choose(ranks, wanted));
    if (!choice) return Status(Code::kNotFound, "no commit");
    const auto chosen = std::ranges::find(ranks, choice->store_id, &ExistingRank::store_id);
    const auto differences = Store::differences(*chosen, options_, static_cast<std::uint32_t>(paths_.size()));
    if (!differences.empty()) return Status(Code::kInvalidArgument, differences[0]);
    return Store::open(drives, options_, std::move(*chosen), choice->kept);
  }
  std::unique_ptr<Store> recovered(std::optional<std::uint64_t> wanted = std::nullopt) const {
    auto store = recover(wanted);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }

  static std::vector<std::uint64_t> numbers_of(const std::vector<HeldCommit>& commits) {
    std::vector<std::uint64_t> numbers;
    for (const HeldCommit& commit : commits) numbers.push_back(commit.record.number);
    return numbers;
  }

  /// Overwrites bytes of a file as a fault of a drive would.
  static void overwrite(const std::string& file_path, std::uint64_t offset, const std::string& bytes) {
    std::fstream file(file_path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    ASSERT_TRUE(file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())));
  }
  static void flip(const std::string& file_path, std::uint64_t offset) {
    std::fstream file(file_path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    overwrite(file_path, offset, std::string(1, static_cast<char>(byte ^ 1)));
  }
};

}  // namespace sluice::store
