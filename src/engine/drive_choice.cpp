#include "engine/drive_choice.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "io/drive_probe.hpp"
#include "memory/arena.hpp"
#include "store/lock.hpp"

namespace sluice::engine {
namespace {

constexpr std::uint64_t kProbeMemoryBytesMost = 128 << 20;

/// A profile, or why there is none.
struct Found {
  std::optional<io::DriveProfile> profile;
  std::string why_not;
  bool failed = false;  // something that was hoped for did not work
};

Found load(const io::Directory& directory) {
  Found found;
  Result<std::optional<io::DriveProfile>> loaded = io::load_profile(directory, &found.why_not);
  if (loaded.ok())
    found.profile = *loaded;
  else
    found = {.profile = {}, .why_not = loaded.status().message(), .failed = true};
  return found;
}

/// Why a drive without a profile is not to be probed; empty: it is.
std::string why_no_probe(const DriveQuestion& question) {
  if (question.io.queue_depth > 0 && question.io.piece_bytes > 0 && question.io.probe != DriveProbe::kAlways)
    return "the options say how to ask it";
  if (question.io.probe == DriveProbe::kNever) return "the options forbid a probe";
  if (!question.probe) return "nothing can probe it";
  if (question.io.probe == DriveProbe::kWhenWorthIt && question.store_bytes < kProbedStoreBytesMin)
    return fmt::format("{} bytes of store are not worth a probe, {} would be", question.store_bytes,
                       kProbedStoreBytesMin);
  // A store that is there takes what it takes of the budget, and the probe's file lies beside it.
  const std::uint64_t file_bytes = io::ProbeOptions().file_bytes;
  if (question.nvme_budget_bytes > 0 && question.nvme_budget_bytes < question.store_bytes + file_bytes)
    return fmt::format("a probe needs {} bytes beside {} of store, nvme_budget_bytes is {}", file_bytes,
                       question.store_bytes, question.nvme_budget_bytes);
  if (question.probe_memory_bytes < io::kProbeMemoryBytesMin)
    return fmt::format("a probe needs {} bytes of host memory, the budget is {}", io::kProbeMemoryBytesMin,
                       question.probe_memory_bytes);
  return {};
}

Result<io::DriveProfile> measure(const io::Directory& directory, const DriveQuestion& question) {
  SLUICE_ASSIGN_OR_RETURN(
      const memory::Arena arena,
      memory::Arena::create({.bytes = std::min(question.probe_memory_bytes, kProbeMemoryBytesMost),
                             .purpose = "a drive's probe"}));
  return question.probe(directory, arena.span(), question.io.backend);
}

Found find(const io::Directory& directory, const DriveQuestion& question) {
  Found found = load(directory);
  if (found.profile) return found;
  if (const std::string why = why_no_probe(question); !why.empty()) {
    found.why_not += "; " + why;
    return found;
  }
  // Ranks of one drive would each see a part of it: one measures, the others find what it has kept.
  const auto guard = store::NamesGuard::acquire(directory);
  if (!guard.ok()) return {.profile = {}, .why_not = guard.status().message(), .failed = true};
  found = load(directory);
  if (found.profile) return found;
  const Result<io::DriveProfile> measured = measure(directory, question);
  if (!measured.ok()) {
    return {.profile = {},
            .why_not = fmt::format("{}; its probe failed: {}", found.why_not, measured.status().message()),
            .failed = true};
  }
  found = {.profile = *measured, .why_not = {}};
  if (const Status saved = io::save_profile(directory, *measured); !saved.ok()) {
    found.why_not = fmt::format("its profile could not be kept: {}", saved.message());
    found.failed = true;
  }
  return found;
}

/// Bytes a second of a step, which writes what it reads; 0: unknown.
double step_bytes_per_s(const io::DriveProfile& profile) {
  if (profile.mixed_bytes_per_s > 0) return profile.mixed_bytes_per_s;
  if (profile.read_bytes_per_s <= 0 || profile.write_bytes_per_s <= 0) return 0;
  return 2 / (1 / profile.read_bytes_per_s + 1 / profile.write_bytes_per_s);
}

}  // namespace

io::BackendKind backend_kind(IoBackend backend) {
  switch (backend) {
    case IoBackend::kAuto:
      return io::BackendKind::kAuto;
    case IoBackend::kUring:
      return io::BackendKind::kUring;
    case IoBackend::kThreads:
      return io::BackendKind::kThreads;
  }
  return io::BackendKind::kAuto;
}

Result<io::DriveProfile> probe_with_backend(const io::Directory& directory, std::span<std::byte> memory,
                                            IoBackend backend) {
  SLUICE_ASSIGN_OR_RETURN(const io::SelectedBackend selected,
                          io::open_backend({.kind = backend_kind(backend), .queue_depth = io::kProbeDepth}));
  return io::probe_drive(*selected.backend, directory, memory, {});
}

DriveChoice choose_drives(std::span<const io::Directory> directories, const DriveQuestion& question) {
  DriveChoice choice;
  for (const io::Directory& directory : directories) {
    const Found found = find(directory, question);
    const io::DriveProfile profile = found.profile.value_or(io::DriveProfile());
    io::DriveSettings settings = profile.settings;
    std::string source =
        found.profile ? fmt::format("{} {}", profile.measured_by, profile.measured_on) : "default";
    if (question.io.queue_depth > 0) settings.depth = question.io.queue_depth;
    if (question.io.piece_bytes > 0) settings.piece_bytes = question.io.piece_bytes;
    if (question.io.queue_depth > 0 && question.io.piece_bytes > 0)
      source = "options";
    else if (question.io.queue_depth > 0 || question.io.piece_bytes > 0)
      source = "options, else " + source;
    choice.settings.push_back(settings);
    choice.weights.push_back(step_bytes_per_s(profile));
    choice.stats.push_back({.directory = directory.path(),
                            .piece_bytes = settings.piece_bytes,
                            .depth = settings.depth,
                            .read_bytes_per_s = profile.read_bytes_per_s,
                            .write_bytes_per_s = profile.write_bytes_per_s,
                            .mixed_bytes_per_s = profile.mixed_bytes_per_s,
                            .source = std::move(source),
                            .note = found.why_not});
    if (found.failed) choice.fallbacks.push_back(found.why_not);
  }
  const auto unknown = std::ranges::count(choice.weights, 0.0);
  if (unknown > 0 && unknown < static_cast<std::ptrdiff_t>(choice.weights.size()))
    choice.fallbacks.push_back(
        fmt::format("{} of {} drives were not measured: all take the same", unknown, choice.weights.size()));
  if (unknown > 0) choice.weights.clear();
  return choice;
}

DriveChoice in_order_of(std::span<const std::string> directories, const DriveChoice& choice) {
  DriveChoice ordered{.settings = {}, .weights = {}, .stats = {}, .fallbacks = choice.fallbacks};
  for (const std::string& directory : directories) {
    const auto found = std::ranges::find(choice.stats, directory, &DriveStats::directory);
    const auto index = static_cast<std::size_t>(found - choice.stats.begin());
    ordered.settings.push_back(choice.settings[index]);
    if (!choice.weights.empty()) ordered.weights.push_back(choice.weights[index]);
    ordered.stats.push_back(*found);
  }
  return ordered;
}

}  // namespace sluice::engine
