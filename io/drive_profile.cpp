#include "io/drive_profile.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <utility>

#include "io/random.hpp"

namespace sluice::io {
namespace {

constexpr std::string_view kVersion = "1";
constexpr std::size_t kFileBytesMax = 8192;
constexpr int kMaxTries = 1000;  // of EINTR in a row
constexpr std::uint64_t kPieceBytesMin = 512;
constexpr std::uint64_t kPieceBytesMax = std::uint64_t{1} << 30;
constexpr std::uint64_t kDepthMax = 4096;
constexpr std::uint64_t kBytesPerSecondMax = 10'000'000'000'000;

/// FNV-1a, 64 bits. A change within one byte always changes it: each of its steps can be undone.
/// Source: Fowler, Noll, Vo; draft-eastlake-fnv.
std::uint64_t checksum(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
  return hash;
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= 16 &&
         std::ranges::all_of(text, [](char letter) { return letter >= 'a' && letter <= 'z'; });
}

/// "2026-11-30"
bool is_day(std::string_view text) {
  if (text.size() != 10) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 4 || i == 7;
    if (dash ? text[i] != '-' : text[i] < '0' || text[i] > '9') return false;
  }
  return true;
}

/// What is wrong with the numbers and words of a profile; empty: nothing.
std::string fault_of(const DriveProfile& profile) {
  const auto outside = [](std::string_view name, auto value, auto least, auto most) {
    return fmt::format("{} is {}: it must be {} to {}", name, value, least, most);
  };
  const DriveSettings& settings = profile.settings;
  if (settings.piece_bytes < kPieceBytesMin || settings.piece_bytes > kPieceBytesMax)
    return outside("piece_bytes", settings.piece_bytes, kPieceBytesMin, kPieceBytesMax);
  if (settings.depth < 1 || settings.depth > kDepthMax) return outside("depth", settings.depth, 1, kDepthMax);
  for (const auto& [name, rate] : {std::pair("read_bytes_per_s", profile.read_bytes_per_s),
                                   std::pair("write_bytes_per_s", profile.write_bytes_per_s),
                                   std::pair("mixed_bytes_per_s", profile.mixed_bytes_per_s)}) {
    if (!(rate >= 0) || rate > static_cast<double>(kBytesPerSecondMax))
      return outside(name, rate, 0, kBytesPerSecondMax);
  }
  if (!is_word(profile.measured_by))
    return fmt::format("measured_by is \"{}\": it must be a word of small letters", profile.measured_by);
  if (!is_day(profile.measured_on))
    return fmt::format("measured_on is \"{}\": it must be a day like 2026-11-30", profile.measured_on);
  return {};
}

std::string text_of(const DriveProfile& profile, std::string_view identity) {
  std::string text = fmt::format(
      "sluice-drive {}\nidentity {}\npiece_bytes {}\ndepth {}\nread_bytes_per_s {:.0f}\nwrite_bytes_per_s "
      "{:.0f}\n"
      "mixed_bytes_per_s {:.0f}\nmeasured_by {}\nmeasured_on {}\n",
      kVersion, identity, profile.settings.piece_bytes, profile.settings.depth,
      std::floor(profile.read_bytes_per_s), std::floor(profile.write_bytes_per_s),
      std::floor(profile.mixed_bytes_per_s), profile.measured_by, profile.measured_on);
  text += fmt::format("checksum {:016x}\n", checksum(text));
  return text;
}

/// Takes lines "name value" from a text, in order.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  std::string_view value(std::string_view name) {
    const std::size_t end = rest_.find('\n');
    const std::string_view line = rest_.substr(0, end);
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (end != std::string_view::npos && line.size() > name.size() && line.starts_with(name) &&
        line[name.size()] == ' ')
      return line.substr(name.size() + 1);
    ok_ = false;
    return {};
  }
  std::uint64_t number(std::string_view name, std::uint64_t most) {
    const std::string_view text = value(name);
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    ok_ = ok_ && error == std::errc() && end == text.data() + text.size() && number <= most;
    return number;
  }
  bool ok() const { return ok_; }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

/// Returns: nothing, with the reason, for a text that text_of() does not write on this drive.
std::optional<DriveProfile> parse(std::string_view text, std::string_view identity, std::string& why_not) {
  Lines lines(text);
  const std::string_view version = lines.value("sluice-drive");
  if (lines.ok() && version != kVersion) {
    why_not = fmt::format("it is of version {}, this program reads {}", version.substr(0, 16), kVersion);
    return std::nullopt;
  }
  const std::string_view found_identity = lines.value("identity");
  DriveProfile profile;
  profile.settings.piece_bytes = static_cast<std::uint32_t>(lines.number("piece_bytes", kPieceBytesMax));
  profile.settings.depth = static_cast<std::uint32_t>(lines.number("depth", kDepthMax));
  profile.read_bytes_per_s = static_cast<double>(lines.number("read_bytes_per_s", kBytesPerSecondMax));
  profile.write_bytes_per_s = static_cast<double>(lines.number("write_bytes_per_s", kBytesPerSecondMax));
  profile.mixed_bytes_per_s = static_cast<double>(lines.number("mixed_bytes_per_s", kBytesPerSecondMax));
  profile.measured_by = lines.value("measured_by");
  profile.measured_on = lines.value("measured_on");
  // What is read is what would be written, to the byte, checksum included.
  if (!lines.ok() || !fault_of(profile).empty() || text_of(profile, found_identity) != text) {
    why_not = "it is damaged";
    return std::nullopt;
  }
  if (found_identity != identity) {
    why_not = fmt::format("it was measured on another drive ({}, not {})", found_identity, identity);
    return std::nullopt;
  }
  return profile;
}

Status write_all(int fd, std::string_view text, const std::string& doing) {
  for (int tries = 0; !text.empty();) {
    const ssize_t moved = ::write(fd, text.data(), text.size());
    if (moved < 0 && errno == EINTR && ++tries < kMaxTries) continue;
    if (moved <= 0) return status_from_errno(moved < 0 ? errno : EIO, doing);
    text.remove_prefix(static_cast<std::size_t>(moved));
  }
  return {};
}

}  // namespace

Result<std::optional<DriveProfile>> load_profile(const Directory& directory, std::string* why_not) {
  std::string ignored;
  std::string& why = why_not != nullptr ? *why_not : ignored;
  const std::string name(kProfileName);
  const std::string doing = fmt::format("reading {}", directory.path_of(name));
  const auto damaged = [&](std::string_view what) {
    why = fmt::format("{}: it is damaged: {}", directory.path_of(name), what);
    return std::optional<DriveProfile>();
  };
  // Without O_NONBLOCK a pipe would be waited for.
  const Descriptor fd(::openat(directory.fd(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (fd.get() < 0) {
    const int error = errno;
    if (error == ENOENT) {
      why = fmt::format("{}: there is none", directory.path_of(name));
      return std::optional<DriveProfile>();
    }
    if (error == ELOOP || error == ENXIO) return damaged("not a regular file");
    return status_from_errno(error, doing);
  }
  struct stat found;
  if (::fstat(fd.get(), &found) != 0) return status_from_errno(errno, doing);
  if (!S_ISREG(found.st_mode)) return damaged("not a regular file");

  std::string text(kFileBytesMax + 1, '\0');
  std::size_t bytes = 0;
  for (int tries = 0; bytes < text.size();) {
    const ssize_t moved = ::read(fd.get(), text.data() + bytes, text.size() - bytes);
    if (moved < 0 && errno == EINTR && ++tries < kMaxTries) continue;
    if (moved < 0) return status_from_errno(errno, doing);
    if (moved == 0) break;
    bytes += static_cast<std::size_t>(moved);
  }
  if (bytes > kFileBytesMax) return damaged(fmt::format("longer than {} bytes", kFileBytesMax));
  text.resize(bytes);

  SLUICE_ASSIGN_OR_RETURN(const std::string identity, drive_identity(directory));
  std::optional<DriveProfile> profile = parse(text, identity, why);
  if (!profile) why = fmt::format("{}: {}", directory.path_of(name), why);
  return profile;
}

Status save_profile(const Directory& directory, const DriveProfile& profile) {
  if (const std::string fault = fault_of(profile); !fault.empty())
    return Status(Code::kInvalidArgument, fmt::format("profile of {}: {}", directory.path(), fault));
  SLUICE_ASSIGN_OR_RETURN(const std::string identity, drive_identity(directory));
  const std::string text = text_of(profile, identity);

  const std::string draft = fmt::format("{}.{:016x}", kProfileName, random_u64());
  const std::string doing = fmt::format("writing {}", directory.path_of(draft));
  const Descriptor fd(
      ::openat(directory.fd(), draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd.get() < 0) return status_from_errno(errno, doing);
  Status status = write_all(fd.get(), text, doing);
  if (status.ok() && ::fsync(fd.get()) != 0) status = status_from_errno(errno, doing);
  if (status.ok()) status = directory.rename(draft, std::string(kProfileName));
  if (!status.ok()) {
    (void)directory.remove(draft);  // the first failure is the one to report
    return status;
  }
  return directory.sync();
}

std::string today() {
  const std::time_t now = ::time(nullptr);
  struct tm day;
  ::gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

}  // namespace sluice::io
