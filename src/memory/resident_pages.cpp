#include "memory/resident_pages.hpp"

#include <charconv>
#include <fstream>
#include <istream>
#include <string>

#include "memory/pseudo_file.hpp"

namespace sluice::memory {

ResidentPages parse_resident_pages(std::istream& smaps, std::uint64_t begin, std::uint64_t end) {
  ResidentPages pages;
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    // A mapping opens with "7f0000000000-7f0000200000 rw-p …", its fields follow as "Rss:  2048 kB".
    std::uint64_t address = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), address, 16);
    if (error == std::errc() && stop != line.data() + line.size() && *stop == '-') {
      inside = address >= begin && address < end;
    } else if (inside) {
      pages.resident_bytes += number_of_line(line, "Rss:").value_or(0) * 1024;
      pages.huge_bytes += number_of_line(line, "AnonHugePages:").value_or(0) * 1024;
    }
  }
  return pages;
}

ResidentPages read_resident_pages(std::uint64_t begin, std::uint64_t end) {
  std::ifstream smaps("/proc/self/smaps");
  return parse_resident_pages(smaps, begin, end);
}

}  // namespace sluice::memory
