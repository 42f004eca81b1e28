#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run_command.hpp"

namespace sluice::tools {
namespace {

using testing::HasSubstr;

TEST(Command, BadUsageExitsWithTwoAndSaysWhy) {
  const std::vector<std::vector<std::string>> bad = {{},
                                                     {"unknown"},
                                                     {"nvme"},
                                                     {"doctor"},
                                                     {"bench"},
                                                     {"nvme", "--dir"},
                                                     {"nvme", "--dir", "/no/such/directory"}};
  for (const auto& arguments : bad) {
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 2) << testing::PrintToString(arguments) << result.errors;
    EXPECT_FALSE(result.errors.empty());
    EXPECT_EQ(result.output, "");
  }
}

TEST(Command, HelpAndVersionExitWithZero) {
  EXPECT_EQ(run_command({"--help"}).exit_code, 0);
  EXPECT_THAT(run_command({"--help"}).output, HasSubstr("--json"));
  EXPECT_EQ(run_command({"--version"}).exit_code, 0);
  for (const char* command : {"doctor", "nvme", "bench", "train"}) {
    const CommandResult result = run_command({command, "--help"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.output, HasSubstr("--dir"));
  }
}

}  // namespace
}  // namespace sluice::tools
