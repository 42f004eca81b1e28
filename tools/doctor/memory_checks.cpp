#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "memory/arena.hpp"
#include "memory/memory_room.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/pseudo_files.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kArenaBytes = 8 << 20;
constexpr std::uint64_t kLittleMemoryBytes = 1 << 30;
// Of pages that are reserved and free in the hugetlb pools: Sluice, which does without them, lacks them.
constexpr std::uint64_t kMuchReservedBytes = 1 << 30;

std::uint64_t number_in(const std::string& text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

Check check_transparent_pages(const Machine& machine) {
  const std::string folder = "/sys/kernel/mm/transparent_hugepage";
  const std::string mode = chosen_of(first_line(machine.root + folder + "/enabled"));
  const std::string defrag = chosen_of(first_line(machine.root + folder + "/defrag"));
  const auto arena = memory::Arena::create({.bytes = kArenaBytes, .purpose = "the huge pages' test"});
  const std::string backing = arena.ok() ? arena->backing() : arena.status().message();
  const bool huge = arena.ok() && backing.starts_with("huge pages") && backing.find("4 KiB") == backing.npos;
  Findings findings;
  const std::string detail =
      fmt::format("an arena of {} is on {}; transparent_hugepage: {}, defrag: {}", size_text(kArenaBytes),
                  backing, mode.empty() ? "absent" : mode, defrag.empty() ? "absent" : defrag);
  if (mode.empty()) {
    findings.add(detail, "a kernel with transparent huge pages (CONFIG_TRANSPARENT_HUGEPAGE)");
  } else if (mode == "never") {
    findings.add(detail, fmt::format("echo madvise > {}/enabled", folder));
  } else if (huge) {
    findings.add(detail);
  } else if (defrag == "never") {
    findings.add(detail, fmt::format("echo madvise > {}/defrag", folder));
  } else {
    findings.add(detail,
                 "free memory, or echo 1 > /proc/sys/vm/compact_memory: no whole huge pages are left");
  }
  return findings.check("huge pages");
}

Check check_pools(const Machine& machine) {
  const std::string folder = "/sys/kernel/mm/hugepages";
  std::vector<std::string> pools;
  std::uint64_t free_bytes = 0;
  for (const std::string& name : names_in(machine.root + folder)) {  // "hugepages-2048kB"
    const std::string pool = machine.root + folder + "/" + name;
    const std::uint64_t page_bytes = number_in(name.substr(name.find('-') + 1)) << 10;
    const std::uint64_t pages = number_in(first_line(pool + "/nr_hugepages"));
    const std::uint64_t free_pages = number_in(first_line(pool + "/free_hugepages"));
    pools.push_back(fmt::format("{} of {}, {} free", pages, size_text(page_bytes), free_pages));
    free_bytes += free_pages * page_bytes;
  }
  Findings findings;
  if (pools.empty()) {
    findings.add("none; Sluice does without");
  } else if (free_bytes < kMuchReservedBytes) {
    findings.add(fmt::format("pages: {}; Sluice does without", fmt::join(pools, "; ")));
  } else {
    findings.add(
        fmt::format("pages: {}; {} are reserved and of no use to Sluice", fmt::join(pools, "; "),
                    size_text(free_bytes)),
        fmt::format("echo 0 > {}/hugepages-…/nr_hugepages, unless another program needs them", folder));
  }
  return findings.check("hugetlb pools");
}

Check check_room(const memory::MemoryRoom& room) {
  const bool enough = room.bytes() >= kLittleMemoryBytes;
  return {"memory", enough ? CheckStatus::kOk : CheckStatus::kDegraded,
          fmt::format("{} of {} available", size_text(room.bytes()), size_text(room.machine_bytes)),
          enough ? "" : "free memory or raise the control group's limit: host budgets are taken from it"};
}

// "v1 and v2": both may be mounted side by side.
std::string versions_of(const Machine& machine) {
  bool v1 = false, v2 = false;
  for (const memory::Mount& mount : memory::read_mounts(machine.root)) {
    v1 = v1 || mount.type == "cgroup";
    v2 = v2 || mount.type == "cgroup2";
  }
  if (v1 && v2) return "v1 and v2";
  return v1 ? "v1" : v2 ? "v2" : "none mounted";
}

Check check_groups(const Machine& machine, const memory::CgroupLimits& limits) {
  Findings findings;
  findings.add(versions_of(machine));
  if (limits.memory_bytes == memory::kNoLimit) {
    findings.add("no memory limit");
  } else {
    const std::string text = fmt::format("memory limit {}, {} left ({})", size_text(limits.memory_bytes),
                                         size_text(limits.memory_room_bytes), limits.memory_file);
    if (limits.memory_room_bytes >= kLittleMemoryBytes) {
      findings.add(text);
    } else {
      findings.add(text, "raise " + limits.memory_file + " (systemd: MemoryMax=, a container: --memory)");
    }
  }
  findings.add(limits.cpu_quota == memory::kNoQuota ? std::string("no CPU quota")
                                                    : fmt::format("{:.2f} CPUs' time", limits.cpu_quota));
  return findings.check("control group");
}

}  // namespace

std::vector<Check> check_memory(const Machine& machine) {
  const memory::MemoryRoom room = memory::read_memory_room(machine.root);
  return {check_transparent_pages(machine), check_pools(machine), check_room(room),
          check_groups(machine, room.cgroup)};
}

}  // namespace sluice::tools
