#include "tools/pseudo_files.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sluice::tools {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

}  // namespace

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return trimmed(line);
}

std::string field_of(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) return trimmed(line.substr(key.size()));
  }
  return "";
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string chosen_of(const std::string& choices) {
  const std::size_t begin = choices.find('[');
  const std::size_t end = choices.find(']');
  if (begin == choices.npos || end == choices.npos || end < begin) return choices;
  return choices.substr(begin + 1, end - begin - 1);
}

}  // namespace sluice::tools
