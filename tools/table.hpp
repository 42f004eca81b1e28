#pragma once

#include <string>
#include <vector>

namespace sluice::tools {

/// Rows of text in aligned columns; the first column to the left, the others to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

  /// Requires: no more cells than the header has; missing ones stay empty.
  void add(std::vector<std::string> cells);

  /// The lines, each ended by a newline, a rule below the header.
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sluice::tools
