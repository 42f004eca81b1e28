#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "io/backend.hpp"
#include "io/directory.hpp"
#include "io/open_backend.hpp"
#include "kernels/isa.hpp"
#include "memory/arena.hpp"
#include "memory/memory_room.hpp"
#include "memory/topology.hpp"
#include "tools/checks.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kRegisteredBytes = 64 << 20;
constexpr std::uint64_t kArenaBytes = 8 << 20;
constexpr std::uint64_t kLittleMemoryBytes = 1 << 30;

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string uring_features() {
  io_uring_params params = {};
  const io::Descriptor ring(static_cast<int>(syscall(__NR_io_uring_setup, 1, &params)));
  if (ring.get() < 0) return "unknown";
  constexpr std::array kFeatures = {std::pair{IORING_FEAT_SINGLE_MMAP, "single mmap"},
                                    std::pair{IORING_FEAT_NODROP, "no drop"},
                                    std::pair{IORING_FEAT_SUBMIT_STABLE, "stable submission"},
                                    std::pair{IORING_FEAT_RW_CUR_POS, "current position"},
                                    std::pair{IORING_FEAT_FAST_POLL, "fast poll"},
                                    std::pair{IORING_FEAT_SQPOLL_NONFIXED, "sqpoll on any file"},
                                    std::pair{IORING_FEAT_EXT_ARG, "wait with timeout"},
                                    std::pair{IORING_FEAT_NATIVE_WORKERS, "native workers"},
                                    std::pair{IORING_FEAT_RSRC_TAGS, "buffer tags"},
                                    std::pair{IORING_FEAT_CQE_SKIP, "silent completions"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kFeatures) {
    if ((params.features & bit) != 0) names.emplace_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Reads the beginning of this program through the ring.
Status read_through(io::Backend& backend) {
  const io::Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  std::array<char, 4> magic = {};
  io::Request request{.op = io::Op::kRead, .fd = file.get(), .bytes = magic.size(), .buffer = magic.data()};
  io::Request* rest = backend.submit(&request);
  while (rest != nullptr || backend.reap() == nullptr) {
    backend.wait(io::steady_now_ns() + 100'000'000);
    if (rest != nullptr) rest = backend.submit(rest);
  }
  if (request.result < 0)
    return status_from_errno(static_cast<int>(-request.result), "reading through the ring");
  if (request.result != magic.size() || magic[1] != 'E')
    return {Code::kDataLoss, "the ring read something else"};
  return {};
}

void check_uring(std::vector<Check>& checks) {
  const std::string setting = first_line("/proc/sys/kernel/io_uring_disabled");
  auto selected = io::open_backend({.kind = io::BackendKind::kUring, .cpus = {}});
  Status status = selected.ok() ? read_through(*selected->backend) : selected.status();
  if (!status.ok()) {
    checks.push_back(
        {"io_uring", CheckStatus::kMissing,
         fmt::format("{}; kernel.io_uring_disabled = {}", status.message(),
                     setting.empty() ? "absent" : setting),
         "set sysctl kernel.io_uring_disabled=0 and allow io_uring in the container's seccomp profile; until "
         "then threads are used"});
    return;
  }
  checks.push_back(
      {"io_uring", CheckStatus::kOk, "a ring was set up and read a file; features: " + uring_features(), ""});

  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string limit_text = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : size_text(limit.rlim_cur);
  auto arena = memory::Arena::create({.bytes = kRegisteredBytes, .purpose = "the lock limit's test"});
  if (arena.ok()) {
    const std::array regions = {arena->span()};
    status = selected->backend->register_memory(regions);
  } else {
    status = arena.status();
  }
  if (status.ok()) {
    checks.push_back(
        {"memlock", CheckStatus::kOk,
         fmt::format("limit {}; {} of buffers were registered", limit_text, size_text(kRegisteredBytes)),
         ""});
  } else {
    checks.push_back(
        {"memlock", CheckStatus::kDegraded, fmt::format("limit {}; {}", limit_text, status.message()),
         "raise the lock limit (ulimit -l, LimitMEMLOCK=, --ulimit memlock=-1): buffers that cannot be "
         "registered cost CPU time"});
  }
}

void check_huge_pages(std::vector<Check>& checks) {
  const std::string mode = first_line("/sys/kernel/mm/transparent_hugepage/enabled");
  const auto arena = memory::Arena::create({.bytes = kArenaBytes, .purpose = "the huge pages' test"});
  const std::string backing = arena.ok() ? arena->backing() : arena.status().message();
  const bool ok = arena.ok() && backing.rfind("huge pages", 0) == 0 && backing.find("4 KiB") == backing.npos;
  checks.push_back(
      {"huge pages", ok ? CheckStatus::kOk : CheckStatus::kDegraded,
       fmt::format("an arena of {} is on {}; transparent_hugepage: {}", size_text(kArenaBytes), backing,
                   mode.empty() ? "absent" : mode),
       ok ? "" : "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled; free memory where it is set"});
  std::string pool = "absent";
  std::ifstream meminfo("/proc/meminfo");
  for (std::string line; std::getline(meminfo, line);) {
    if (line.rfind("HugePages_Total:", 0) == 0)
      pool = line.substr(line.find_first_not_of(' ', line.find(':') + 1));
  }
  checks.push_back(
      {"hugetlb pool", CheckStatus::kOk, fmt::format("{} pages reserved; Sluice does without", pool), ""});
}

void check_limits(std::vector<Check>& checks) {
  const memory::MemoryRoom room = memory::read_memory_room();
  const bool enough = room.bytes() >= kLittleMemoryBytes;
  const bool limited = room.cgroup.memory_bytes != memory::kNoLimit;
  checks.push_back(
      {"memory", enough ? CheckStatus::kOk : CheckStatus::kDegraded,
       fmt::format("{} of {} available", size_text(room.bytes()), size_text(room.machine_bytes)),
       enough ? "" : "free memory or raise the control group's limit: host budgets are taken from it"});
  checks.push_back({"control group", CheckStatus::kOk,
                    limited ? fmt::format("memory limit {} ({})", size_text(room.cgroup.memory_bytes),
                                          room.cgroup.memory_file)
                            : "no memory limit",
                    ""});
}

void check_processors(std::vector<Check>& checks) {
  const auto topology = memory::read_topology();
  if (!topology.ok()) {
    checks.push_back({"CPUs", CheckStatus::kMissing, topology.status().message(), "mount /sys and /proc"});
    return;
  }
  const bool whole = topology->threads() == topology->cpus.size();
  std::string detail = fmt::format("{} in the affinity mask ({}), {} threads at once", topology->cpus.size(),
                                   fmt::join(topology->cpus, ","), topology->threads());
  for (const std::string& note : topology->notes) detail += "; " + note;
  checks.push_back({"CPUs", whole ? CheckStatus::kOk : CheckStatus::kDegraded, detail,
                    whole ? "" : "raise the control group's CPU quota, or narrow the affinity mask to it"});
  checks.push_back({"NUMA", CheckStatus::kOk,
                    fmt::format("{} node(s)", memory::count_of_mask(topology->nodes)), ""});
}

void check_isa(std::vector<Check>& checks) {
  const kernels::Isa isa = kernels::isa_in_use();
  std::vector<std::string_view> names;
  for (const kernels::Isa other : kernels::isas_available()) names.push_back(kernels::isa_name(other));
  const bool ok = kernels::fuses_multiply_add(isa);
  checks.push_back(
      {"instruction sets", ok ? CheckStatus::kOk : CheckStatus::kDegraded,
       fmt::format("kernels run on {}; usable: {}", kernels::isa_name(isa), fmt::join(names, ", ")),
       ok ? "" : "a CPU (or a virtual machine's CPU model) with AVX2 or AVX-512"});
}

}  // namespace

std::vector<Check> check_machine() {
  std::vector<Check> checks;
  check_uring(checks);
  check_huge_pages(checks);
  check_limits(checks);
  check_processors(checks);
  check_isa(checks);
  return checks;
}

}  // namespace sluice::tools
