#include "tools/byte_progress.hpp"

#include <unistd.h>

#include <iostream>

#include <fmt/format.h>

#include "tools/interrupt.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr auto kPause = std::chrono::milliseconds(200);

}  // namespace

ByteProgress::ByteProgress(std::string doing, std::uint64_t total_bytes)
    : doing_(std::move(doing)), total_bytes_(total_bytes), on_terminal_(isatty(STDERR_FILENO) == 1) {}

ByteProgress::~ByteProgress() { end(); }

void ByteProgress::end() {
  if (line_open_) std::cerr << '\n';
  line_open_ = false;
}

double ByteProgress::seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

Status ByteProgress::report(std::uint64_t bytes) {
  const Clock::time_point now = Clock::now();
  if (on_terminal_ && now - last_ >= kPause) {
    const std::string of = total_bytes_ > 0 ? " of " + size_text(total_bytes_) : "";
    std::cerr << fmt::format("\r\033[K{} {}{}, {}/s", doing_, size_text(bytes), of,
                             size_text(static_cast<std::uint64_t>(static_cast<double>(bytes) / seconds())))
              << std::flush;
    last_ = now;
    line_open_ = true;
  }
  return Interrupt::check();
}

}  // namespace sluice::tools
