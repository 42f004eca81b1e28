#include <set>

#include <gtest/gtest.h>

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
  for (const std::string name :
       {"io_uring", "huge pages", "memory", "control group", "CPUs", "NUMA", "instruction sets"}) {
    EXPECT_EQ(names.count(name), 1U) << name;
  }
  for (const std::string name : {"drive of ", "direct I/O on ", "space on "}) {
    EXPECT_EQ(names.count(name + directory.path()), 1U) << name;
  }
  EXPECT_TRUE(directory.names().empty());
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
