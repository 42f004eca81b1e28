#include "tools/block_device.hpp"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::optional<std::uint64_t> bytes_written(const fs::path& device) {
  std::ifstream file(device / "stat");
  std::uint64_t reads, reads_merged, sectors_read, read_ms, writes, writes_merged, sectors_written;
  file >> reads >> reads_merged >> sectors_read >> read_ms >> writes >> writes_merged >> sectors_written;
  if (!file) return std::nullopt;
  return sectors_written * 512;
}

}  // namespace

BlockDevice find_block_device(const std::string& directory) {
  BlockDevice found;
  struct stat information = {};
  if (stat(directory.c_str(), &information) != 0) return found;
  found.number = fmt::format("{}:{}", major(information.st_dev), minor(information.st_dev));
  std::error_code error;
  fs::path device = fs::canonical("/sys/dev/block/" + found.number, error);
  if (error) return found;
  if (fs::exists(device / "partition")) device = device.parent_path();
  found.name = device.filename().string();
  found.text = found.name;
  if (const std::string model = first_line(device / "device/model"); !model.empty())
    found.text += " (" + model + ")";
  // A paravirtual drive says it rotates, whatever is behind it.
  if (found.name.rfind("vd", 0) == 0) {
    found.text += ", virtual";
  } else {
    found.text += first_line(device / "queue/rotational") == "1" ? ", rotational" : ", not rotational";
  }
  for (const auto& slave : fs::directory_iterator(device / "slaves", error)) {
    found.text += ", over " + slave.path().filename().string();
  }
  found.bytes_written = bytes_written(device);
  return found;
}

}  // namespace sluice::tools
