#include "tools/table.hpp"

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

TEST(Table, ColumnsAreAlignedAndMissingCellsEmpty) {
  Table table({"what", "value"});
  table.add({"a", "1.50"});
  table.add({"longer", "12"});
  table.add({"alone"});
  EXPECT_EQ(table.text(),
            "what    value\n"
            "-------------\n"
            "a        1.50\n"
            "longer     12\n"
            "alone\n");
}

}  // namespace
}  // namespace sluice::tools
