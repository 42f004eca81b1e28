#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "io/backend.hpp"
#include "io/directory.hpp"
#include "io/open_backend.hpp"
#include "memory/arena.hpp"
#include "tools/doctor/checks.hpp"
#include "tools/pseudo_files.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr std::uint64_t kRegisteredBytes = 64 << 20;
constexpr rlim_t kLeastOpenFiles = 256;

// Headers may be older than the kernel.
constexpr std::uint32_t kCqsize = 1U << 3;
constexpr std::uint32_t kCoopTaskrun = 1U << 8;
constexpr std::uint32_t kSingleIssuer = 1U << 12;
constexpr std::uint32_t kDeferTaskrun = 1U << 13;
constexpr std::uint32_t kNoSqarray = 1U << 16;

struct SetupFlag {
  std::uint32_t bit;
  std::uint32_t needs;  // without which the kernel refuses it
  const char* name;
  const char* since;
};
constexpr std::array kSetupFlags = {SetupFlag{kSingleIssuer, 0, "single_issuer", "6.0"},
                                    SetupFlag{kDeferTaskrun, kSingleIssuer, "defer_taskrun", "6.1"},
                                    SetupFlag{kCoopTaskrun, 0, "coop_taskrun", "5.19"},
                                    SetupFlag{kNoSqarray, 0, "no_sqarray", "6.6"},
                                    SetupFlag{kCqsize, 0, "cqsize", "5.5"}};

io::Descriptor open_ring(std::uint32_t flags, io_uring_params& params) {
  params = {};
  params.flags = flags;
  params.cq_entries = (flags & kCqsize) != 0 ? 16 : 0;
  return io::Descriptor(static_cast<int>(syscall(__NR_io_uring_setup, 4, &params)));
}

// Flags are looked at before memory is, of which rings that were closed a moment ago still hold some.
bool takes(const SetupFlag& flag) {
  io_uring_params params;
  return open_ring(flag.bit | flag.needs, params).get() >= 0 || errno == ENOMEM;
}

std::string names_of(std::uint32_t features) {
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
    if ((features & bit) != 0) names.emplace_back(name);
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
    backend.wait(io::steady_now_ns() + 100'000'000, 1);
    if (rest != nullptr) rest = backend.submit(rest);
  }
  if (request.result < 0)
    return status_from_errno(static_cast<int>(-request.result), "reading through the ring");
  if (request.result != magic.size() || magic[1] != 'E')
    return {Code::kDataLoss, "the ring read something else"};
  return {};
}

std::string limit_text(rlim_t limit, bool bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return bytes ? size_text(limit) : fmt::format("{}", limit);
}

// Returns: 0 or an errno.
int register_with(const io::Descriptor& ring, unsigned opcode, const void* what) {
  return syscall(__NR_io_uring_register, ring.get(), opcode, what, 1) == 0 ? 0 : errno;
}

Check check_registration(const io::Descriptor& ring) {
  Findings findings;
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  findings.add(fmt::format("limit {}, at most {}", limit_text(limit.rlim_cur, true),
                           limit_text(limit.rlim_max, true)));
  const auto arena = memory::Arena::create({.bytes = kRegisteredBytes, .purpose = "the lock limit's test"});
  if (arena.ok()) {
    const iovec buffer{arena->span().data(), arena->span().size()};
    const int error = register_with(ring, IORING_REGISTER_BUFFERS, &buffer);
    if (error == 0) {
      findings.add(fmt::format("{} of buffers were registered", size_text(kRegisteredBytes)));
    } else {
      findings.add(
          fmt::format("registering {} of buffers: {}", size_text(kRegisteredBytes), strerrordesc_np(error)),
          fmt::format(
              "{} (a shell), LimitMEMLOCK=infinity (systemd), --ulimit memlock=-1 (a container): "
              "buffers that cannot be registered cost CPU time",
              limit.rlim_cur < limit.rlim_max
                  ? "ulimit -l " + (limit.rlim_max == RLIM_INFINITY ? std::string("unlimited")
                                                                    : fmt::format("{}", limit.rlim_max >> 10))
                  : "a memlock line in /etc/security/limits.conf, then ulimit -l unlimited"));
    }
  } else {
    findings.add(arena.status().message(), "free memory");
  }
  const io::Descriptor file(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  const int fd = file.get();
  const int error = register_with(ring, IORING_REGISTER_FILES, &fd);
  if (error == 0) {
    findings.add("a file was registered");
  } else {
    findings.add(fmt::format("registering a file: {}", strerrordesc_np(error)),
                 "raise the limit of open files: ulimit -n");
  }
  return findings.check("memlock");
}

Check check_open_files() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  Findings findings;
  const std::string text = fmt::format("limit {}, at most {}", limit_text(limit.rlim_cur, false),
                                       limit_text(limit.rlim_max, false));
  if (limit.rlim_cur >= kLeastOpenFiles) {
    findings.add(text);
  } else {
    findings.add(text, limit.rlim_max >= kLeastOpenFiles
                           ? fmt::format("ulimit -n {}", std::min<rlim_t>(limit.rlim_max, 1024))
                           : "LimitNOFILE=1024 (systemd), --ulimit nofile=1024 (a container)");
  }
  return findings.check("open files");
}

}  // namespace

Check judge_refused_ring(const RingFacts& facts) {
  const char* symbol = strerrorname_np(facts.error);
  const bool filtered = facts.seccomp == "2";
  std::string remedy;
  if (facts.disabled == "1" || facts.disabled == "2") {
    remedy = "sysctl -w kernel.io_uring_disabled=0";
    if (facts.disabled == "1") remedy += " (or join the group of kernel.io_uring_group)";
  } else if (facts.error == ENOMEM) {
    remedy = "ulimit -l unlimited, or a higher memory limit";
  } else if (facts.error == EMFILE || facts.error == ENFILE) {
    remedy = "ulimit -n 1024";
  } else if (filtered && (facts.error == EPERM || facts.error == ENOSYS || facts.error == EACCES)) {
    remedy =
        "allow io_uring_setup, io_uring_enter and io_uring_register in the container's seccomp profile "
        "(--security-opt seccomp=PROFILE)";
  } else {
    remedy = "a kernel with io_uring, Linux 5.11 or later";
  }
  return {
      "io_uring", CheckStatus::kMissing,
      fmt::format("io_uring_setup: {} ({}); kernel.io_uring_disabled = {}; seccomp filter: {}; threads are "
                  "used",
                  strerrordesc_np(facts.error), symbol == nullptr ? "?" : symbol,
                  facts.disabled.empty() ? "absent" : facts.disabled,
                  facts.seccomp.empty() ? "unknown" : (filtered ? "yes" : "no")),
      remedy};
}

Check judge_ring_flags(const RingFacts& facts) {
  std::vector<std::string> taken, refused;
  bool degraded = false;
  for (const SetupFlag& flag : kSetupFlags) {
    if ((facts.flags & flag.bit) != 0) {
      taken.emplace_back(flag.name);
    } else {
      refused.push_back(fmt::format("{} (Linux {})", flag.name, flag.since));
      // The ring works as well without NO_SQARRAY, one lookup a request apart.
      degraded = degraded || flag.bit != kNoSqarray;
    }
  }
  std::string detail =
      fmt::format("taken: {}", taken.empty() ? "none" : fmt::format("{}", fmt::join(taken, ", ")));
  if (!refused.empty()) detail += fmt::format("; not offered: {}", fmt::join(refused, ", "));
  return {"io_uring setup flags", degraded ? CheckStatus::kDegraded : CheckStatus::kOk, detail,
          degraded ? "Linux 6.1 or later: without them a request costs more CPU time" : ""};
}

std::vector<Check> check_ring(const Machine& machine) {
  std::vector<Check> checks;
  RingFacts facts{.disabled = first_line(machine.root + "/proc/sys/kernel/io_uring_disabled"),
                  .seccomp = field_of(machine.root + "/proc/self/status", "Seccomp:")};
  io_uring_params params;
  const io::Descriptor ring = open_ring(0, params);
  if (ring.get() < 0) {
    facts.error = errno;
    checks.push_back(judge_refused_ring(facts));
  } else {
    const auto selected = io::open_backend({.kind = io::BackendKind::kUring, .cpus = {}});
    const Status status = selected.ok() ? read_through(*selected->backend) : selected.status();
    if (status.ok()) {
      checks.push_back({"io_uring", CheckStatus::kOk,
                        "a ring was set up and read a file; features: " + names_of(params.features), ""});
    } else {
      checks.push_back({"io_uring", CheckStatus::kMissing, status.message() + "; threads are used",
                        "Linux 5.11 or later, a higher lock limit (ulimit -l), and a seccomp profile that "
                        "allows io_uring's calls"});
    }
    const Check registration = check_registration(ring);
    for (const SetupFlag& flag : kSetupFlags) {
      if (takes(flag)) facts.flags |= flag.bit;
    }
    checks.push_back(judge_ring_flags(facts));
    checks.push_back(registration);
  }
  checks.push_back(check_open_files());
  return checks;
}

}  // namespace sluice::tools
