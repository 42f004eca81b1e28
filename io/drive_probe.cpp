#include "io/drive_probe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "io/file.hpp"
#include "io/queue.hpp"

namespace sluice::io {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
constexpr DriveSettings kFill{.piece_bytes = kMiB, .depth = 16};

/// In the order of what they tell: what time does not reach is left out.
constexpr std::array<DriveSettings, 12> kTries{{{kMiB, 8},
                                                {kMiB, 16},
                                                {kMiB / 4, 32},
                                                {kMiB, 4},
                                                {kMiB, 32},
                                                {4 * kMiB, 4},
                                                {kMiB / 4, 16},
                                                {4 * kMiB, 8},
                                                {kMiB / 4, 8},
                                                {4 * kMiB, 16},
                                                {kMiB / 4, 4},
                                                {4 * kMiB, 32}}};
constexpr double kNearlyBest = 0.97;
/// A window is long enough when what was in flight has been replaced this often.
constexpr std::uint64_t kRoundsMin = 3;
/// Windows of the rates that are kept, in seconds_max, and what of each passes before: long beside the bursts that a
/// drive's cache, or a cap that is kept every tenth of a second, lets through. Unequal drives are judged by the first.
constexpr double kMixedWindow = 2;
constexpr double kOneWayWindow = 0.6;
constexpr double kBurst = 0.25;
/// However few it sees a window ends after this many times what was asked.
constexpr double kPatience = 8;

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }
std::uint64_t in_flight_bytes(const DriveSettings& settings) {
  return std::uint64_t{settings.piece_bytes} * settings.depth;
}

enum class Direction : std::uint8_t { kRead, kWrite, kMixed };

/// Keeps transfers of one piece each in flight over a file, round and round.
class Load {
 public:
  Load(Backend& backend, const File& file, std::uint64_t file_bytes, std::span<std::byte> memory,
       const DriveSettings& settings, Direction direction)
      : queue_(backend, {.drives = {settings}}),
        file_(file),
        file_bytes_(file_bytes / settings.piece_bytes * settings.piece_bytes),
        settings_(settings),
        direction_(direction) {
    for (std::uint32_t i = 0; i < settings.depth; ++i) {
      Piece& piece = pieces_.emplace_back();
      piece.load = this;
      piece.file = &file;
      piece.buffer = memory.data() + std::size_t{i} * settings.piece_bytes;
      piece.bytes = settings.piece_bytes;
      piece.on_done = &Load::finished;
    }
  }

  /// Moves the whole file once.
  Status once() {
    bytes_left_ = file_bytes_;
    start();
    queue_.drain();
    return status_;
  }

  /// Returns: bytes a second of a window that begins when everything first in flight has been replaced and
  /// `skipped_seconds` are over.
  Result<double> rate(double window_seconds, double skipped_seconds) {
    bytes_left_ = std::nullopt;
    const std::int64_t start_ns = now_ns();
    start();
    const auto elapsed = [&] { return seconds(now_ns() - start_ns); };
    while (status_.ok() && (done_ < settings_.depth || elapsed() < skipped_seconds) &&
           elapsed() < kPatience * window_seconds)
      turn();
    const std::int64_t begin_ns = now_ns();
    const std::uint64_t before = done_;
    std::int64_t end_ns = begin_ns;
    while (status_.ok() && elapsed() < kPatience * window_seconds &&
           (seconds(end_ns - begin_ns) < window_seconds || done_ - before < kRoundsMin * settings_.depth)) {
      if (turn() > 0) end_ns = now_ns();
    }
    const std::uint64_t counted = done_ - before;
    bytes_left_ = 0;
    queue_.drain();
    if (!status_.ok()) return status_;
    const bool whole = end_ns > begin_ns;
    const auto bytes = static_cast<double>((whole ? counted : done_) * settings_.piece_bytes);
    return bytes / std::max(whole ? seconds(end_ns - begin_ns) : elapsed(), 1e-9);
  }

 private:
  struct Piece : Transfer {
    Load* load = nullptr;
  };

  std::int64_t now_ns() const { return queue_.backend().now_ns(); }
  void start() {
    for (Piece& piece : pieces_) next(piece);
  }
  std::size_t turn() {
    const std::size_t done = queue_.poll();
    if (done == 0) queue_.wait();
    return done;
  }

  void next(Piece& piece) {
    if (!status_.ok() || (bytes_left_ && *bytes_left_ == 0)) return;
    if (bytes_left_) *bytes_left_ -= piece.bytes;
    // Half of the file for each direction: no write meets a read of its bytes.
    const bool mixed = direction_ == Direction::kMixed;
    const bool read = mixed ? reads_ <= writes_ : direction_ == Direction::kRead;
    const std::uint64_t pieces = file_bytes_ / settings_.piece_bytes;
    const std::uint64_t half = pieces / 2;
    std::uint64_t at = (read ? reads_ : writes_) % (mixed ? half : pieces);
    if (mixed && !read) at += half;
    ++(read ? reads_ : writes_);
    piece.op = read ? Op::kRead : Op::kWrite;
    piece.offset = at * settings_.piece_bytes;
    queue_.submit(piece);
  }

  static void finished(Transfer& transfer) {
    Piece& piece = static_cast<Piece&>(transfer);
    Load& load = *piece.load;
    if (!piece.status.ok() && load.status_.ok()) load.status_ = piece.status;
    ++load.done_;
    load.next(piece);
  }

  Queue queue_;
  const File& file_;
  const std::uint64_t file_bytes_;
  const DriveSettings settings_;
  const Direction direction_;
  std::deque<Piece> pieces_;
  std::optional<std::uint64_t> bytes_left_;  // to be begun; nothing: for ever
  std::uint64_t reads_ = 0, writes_ = 0, done_ = 0;
  Status status_;
};

/// Bytes that nothing can compress. Source: Steele, Lea, Flood 2014 (SplitMix64).
void fill_with_noise(std::span<std::byte> memory) {
  std::uint64_t state = 0x243f6a8885a308d3;
  for (std::size_t at = 0; at + sizeof state <= memory.size(); at += sizeof state) {
    std::uint64_t word = state += 0x9e3779b97f4a7c15;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    word ^= word >> 31;
    std::memcpy(memory.data() + at, &word, sizeof word);
  }
}

struct Tried {
  DriveSettings settings;
  double bytes_per_s = 0;
};

/// Requires: at least one.
const Tried& choose(const std::vector<Tried>& tries) {
  const double best = std::ranges::max_element(tries, {}, &Tried::bytes_per_s)->bytes_per_s;
  const Tried* chosen = nullptr;
  for (const Tried& tried : tries) {
    if (tried.bytes_per_s < kNearlyBest * best) continue;
    const auto cost = [](const DriveSettings& settings) {
      return std::pair(in_flight_bytes(settings), settings.piece_bytes);
    };
    if (chosen == nullptr || cost(tried.settings) < cost(chosen->settings)) chosen = &tried;
  }
  return *chosen;
}

}  // namespace

Result<DriveProfile> probe_drive(Backend& backend, const Directory& directory, std::span<std::byte> memory,
                                 const ProbeOptions& options) {
  if (memory.size() < kProbeMemoryBytesMin || options.file_bytes < kProbeFileBytesMin) {
    return Status(Code::kInvalidArgument,
                  fmt::format("probe of {} with {} bytes of memory and a file of {}: at least {} and {}",
                              directory.path(), memory.size(), options.file_bytes, kProbeMemoryBytesMin,
                              kProbeFileBytesMin));
  }
  SLUICE_ASSIGN_OR_RETURN(File file, File::open_unnamed(directory));
  SLUICE_RETURN_IF_ERROR(file.preallocate(options.file_bytes));
  if (!file.direct()) {
    return Status(Code::kFailedPrecondition, fmt::format("{}: {}", file.path(), file.fallback_reason()));
  }
  memory = memory.first(std::min<std::size_t>(memory.size(), options.file_bytes));
  fill_with_noise(memory);
  const auto load = [&](const DriveSettings& settings, Direction direction) {
    return Load(backend, file, options.file_bytes, memory, settings, direction);
  };
  SLUICE_RETURN_IF_ERROR(load(kFill, Direction::kWrite).once());
  SLUICE_RETURN_IF_ERROR(file.flush());
  SLUICE_RETURN_IF_ERROR(load(kFill, Direction::kRead).once());

  const double window_seconds = options.seconds_max / (kTries.size() + 4);
  const std::int64_t start_ns = backend.now_ns();
  std::vector<Tried> tries;
  double best = 0;
  for (const DriveSettings& settings : kTries) {
    const std::uint64_t bytes = in_flight_bytes(settings);
    if (settings.depth > backend.limits().depth || bytes > memory.size() || 2 * bytes > options.file_bytes)
      continue;
    if (!tries.empty()) {
      if (seconds(backend.now_ns() - start_ns) >= options.seconds_max) break;
      if (static_cast<double>(bytes) > best * kProbeSecondsInFlight &&
          bytes > in_flight_bytes(kTries.front()))
        continue;
    }
    SLUICE_ASSIGN_OR_RETURN(const double bytes_per_s,
                            load(settings, Direction::kMixed).rate(window_seconds, 0));
    tries.push_back({settings, bytes_per_s});
    best = std::max(best, bytes_per_s);
  }
  if (tries.empty()) {
    return Status(Code::kInvalidArgument, fmt::format("probe of {}: a backend of depth {} is too shallow",
                                                      directory.path(), backend.limits().depth));
  }
  const Tried& chosen = choose(tries);
  DriveProfile profile{.settings = chosen.settings, .measured_by = "probe", .measured_on = today()};
  for (const auto& [direction, rate, window] :
       {std::tuple(Direction::kMixed, &profile.mixed_bytes_per_s, kMixedWindow),
        std::tuple(Direction::kRead, &profile.read_bytes_per_s, kOneWayWindow),
        std::tuple(Direction::kWrite, &profile.write_bytes_per_s, kOneWayWindow)}) {
    const double rate_seconds = window * options.seconds_max;
    SLUICE_ASSIGN_OR_RETURN(*rate,
                            load(chosen.settings, direction).rate(rate_seconds, kBurst * rate_seconds));
  }
  return profile;
}

}  // namespace sluice::io
