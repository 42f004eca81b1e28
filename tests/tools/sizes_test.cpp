#include "tools/sizes.hpp"

#include <gtest/gtest.h>

#include "sluice/options.hpp"

namespace sluice::tools {
namespace {

TEST(Sizes, PlainBytesAndBinaryUnitsAreRead) {
  EXPECT_EQ(*parse_size("0"), 0U);
  EXPECT_EQ(*parse_size("4097"), 4097U);
  EXPECT_EQ(*parse_size("64KiB"), 65536U);
  EXPECT_EQ(*parse_size("3MiB"), 3U << 20);
  EXPECT_EQ(*parse_size("1.5GiB"), 3U << 29);
  EXPECT_EQ(*parse_size("2TiB"), std::uint64_t{2} << 40);
  EXPECT_EQ(*parse_size("unlimited"), kUnlimited);
}

TEST(Sizes, NonsenseIsRefusedAndNamed) {
  for (const char* text :
       {"", "x", "-1", "1 KiB", "KiB", "1KB", "1e3", "nanGiB", "infGiB", "+1", "1.5", "0x10", "1..5MiB",
        "8388608TiB", "9223372036854775808", "99999999999999999999", "Unlimited"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.ok()) << text;
    EXPECT_EQ(size.status().code(), Code::kInvalidArgument);
    EXPECT_NE(size.status().message().find(std::string("'") + text + "'"), std::string::npos)
        << size.status().message();
    EXPECT_FALSE(check_size(text).empty());
  }
}

TEST(Sizes, BudgetMayBeAPartOfTheState) {
  EXPECT_EQ(*parse_budget("0.25x", 1000), 250U);
  EXPECT_EQ(*parse_budget("1x", 1001), 1001U);
  EXPECT_EQ(*parse_budget("64KiB", 1000), 65536U);
  for (const char* text : {"x", "-1x", "1e9x", "99999999999999999999x", "0.25 x"}) {
    EXPECT_FALSE(parse_budget(text, 1000).ok()) << text;
    EXPECT_FALSE(check_budget(text).empty()) << text;
  }
  EXPECT_TRUE(check_budget("0.25x").empty());
}

TEST(Sizes, TextHasThreeDigitsAndItsUnit) {
  EXPECT_EQ(size_text(17), "17 bytes");
  EXPECT_EQ(size_text(4096), "4.00 KiB");
  EXPECT_EQ(size_text(12 << 20), "12.0 MiB");
  EXPECT_EQ(size_text(std::uint64_t{640} << 30), "640 GiB");
  EXPECT_EQ(size_text(kUnlimited), "unlimited");
}

}  // namespace
}  // namespace sluice::tools
