#include <unistd.h>

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/drive_profile.hpp"
#include "made_store.hpp"
#include "run_command.hpp"

namespace sluice::tools {
namespace {

TEST(Doctor, EachCheckHasAStatusAndARemedyUnlessItIsOk) {
  const ScratchDirectory directory;
  const CommandResult result = run_command({"doctor", "--json", "--dir", directory.path()});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  std::set<std::string> names;
  const nlohmann::json report = result.json();
  for (const auto& check : report.at("checks")) {
    names.insert(check.at("name").get<std::string>());
    const auto status = check.at("status").get<std::string>();
    EXPECT_TRUE(status == "ok" || status == "degraded" || status == "missing") << check;
    EXPECT_EQ(check.at("remedy").get<std::string>().empty(), status == "ok") << check;
    EXPECT_FALSE(check.at("detail").get<std::string>().empty()) << check;
  }
  for (const std::string name : {"io_uring", "open files", "huge pages", "hugetlb pools", "memory",
                                 "control group", "CPUs", "NUMA", "instruction sets", "GPU", "NCCL", "MPI"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  for (const std::string name : {"drive of ", "file system of ", "I/O limits on ", "direct I/O on ",
                                 "space on ", "drive profile of ", "stores in "}) {
    EXPECT_EQ(names.count(name + directory.path()), 1U) << name;
  }
  EXPECT_TRUE(directory.names().empty());
}

TEST(Doctor, ADriveIsMeasuredOrHasTheCommandThatMeasuresIt) {
  const ScratchDirectory directory;
  const auto check = [&] {
    const auto report = run_command({"doctor", "--json", "--dir", directory.path()}).json();
    for (const auto& one : report.at("checks")) {
      if (one.at("name") == "drive profile of " + directory.path()) return one;
    }
    return nlohmann::json();
  };
  const nlohmann::json without = check();
  EXPECT_EQ(without.at("status"), "degraded") << without;
  EXPECT_EQ(without.at("remedy"), "sluice nvme --tune --dir " + directory.path());

  const auto opened = io::Directory::open(directory.path(), io::Access::kReadWrite);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(io::save_profile(*opened, {.settings = {.piece_bytes = 2 << 20, .depth = 16},
                                         .read_bytes_per_s = 5e9,
                                         .write_bytes_per_s = 3e9,
                                         .mixed_bytes_per_s = 4e9,
                                         .measured_by = "tune",
                                         .measured_on = "2026-11-30"})
                  .ok());
  const nlohmann::json with = check();
  EXPECT_EQ(with.at("status"), "ok") << with;
  EXPECT_THAT(with.at("detail").get<std::string>(),
              testing::HasSubstr("by tune on 2026-11-30: depth 16, pieces of 2.00 MiB"));
}

TEST(Doctor, TwoDirectoriesOnOneDriveAreDegraded) {
  const ScratchDirectory first;
  const ScratchDirectory second;
  const auto report = run_command({"doctor", "--json", "--dir", first.path(), "--dir", second.path()}).json();
  std::string status;
  for (const auto& check : report.at("checks")) {
    if (check.at("name") == "drive of " + second.path()) status = check.at("status").get<std::string>();
  }
  EXPECT_EQ(status, "degraded");
}

TEST(Doctor, SaysOfEachStoreWhatACrashWouldCost) {
  const ScratchDirectory directory;
  const auto check = [&] {
    const auto report = run_command({"doctor", "--json", "--dir", directory.path()}).json();
    for (const auto& one : report.at("checks")) {
      if (one.at("name") == "stores in " + directory.path()) return one;
    }
    return nlohmann::json();
  };
  const auto expect = [&](const char* status, const std::string& detail) {
    const nlohmann::json found = check();
    EXPECT_EQ(found.at("status"), status) << found;
    EXPECT_THAT(found.at("detail").get<std::string>(), testing::HasSubstr(detail));
  };
  expect("ok", "none");
  {
    MadeStore scratch({directory.path()}, 0);
    expect("degraded", "a crash loses all of it; in use by process " + std::to_string(getpid()));
    scratch.close();
  }
  MadeStore durable({directory.path()}, 1);
  expect("degraded", "nothing is committed yet");
  durable.step();
  const std::uint64_t number = durable.commit();
  expect("ok", "commit " + std::to_string(number) + " after step 1");
  durable.step();
  const std::uint64_t newest = durable.commit();
  durable.close();
  expect("ok", "commit " + std::to_string(newest) + " after step 2 is the newest of 1");
  expect("ok", "not in use");
}

TEST(Doctor, DirectoryThatCannotBeUsedIsMissingWithItsReason) {
  const auto report = run_command({"doctor", "--json", "--dir", "/proc"}).json();
  std::string status;
  for (const auto& check : report.at("checks")) {
    if (check.at("name") == "direct I/O on /proc") status = check.at("status").get<std::string>();
  }
  EXPECT_EQ(status, "missing");
}

}  // namespace
}  // namespace sluice::tools
