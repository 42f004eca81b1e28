#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "kernels/tile_hash.hpp"
#include "sluice/sluice.hpp"
#include "support/child.hpp"
#include "support/temporary_directory.hpp"

namespace sluice {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint32_t kParameters = 48;
constexpr std::uint32_t kElements = 1 << 20;  // of each
constexpr std::uint64_t kStateBytes = std::uint64_t{kParameters} * kElements * 12;
constexpr std::uint64_t kDeviceBytes = 3 * std::uint64_t{kElements} * 2;

/// What one run in a process of its own has to tell.
struct Outcome {
  std::uint64_t state_hash = 0;  // of every master and moment
  std::uint64_t peak_bytes = 0;  // VmHWM + HugetlbPages
  std::uint64_t reserved_bytes = 0;
  std::uint64_t own_bytes = 0;  // the test's arrays
  std::uint64_t least_host_bytes = 0;
  std::uint64_t chunks = 0;
};

/// "VmHWM" and the like, in bytes.
std::uint64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0)
      return std::strtoull(line.c_str() + field.size() + 1, nullptr, 10) * 1024;
  return 0;
}

Status train(const EngineOptions& options, Outcome& outcome) {
  Result<std::shared_ptr<Device>> device = make_host_device();
  SLUICE_RETURN_IF_ERROR(device.status());
  Result<std::unique_ptr<Engine>> engine = Engine::create(options, *device, make_single_communicator());
  SLUICE_RETURN_IF_ERROR(engine.status());
  const Result<GroupId> group = (*engine)->add_group({.name = "all"});
  SLUICE_RETURN_IF_ERROR(group.status());
  std::vector<ParameterId> parameters;
  for (std::uint32_t i = 0; i < kParameters; ++i) {
    const Result<ParameterId> added = (*engine)->add_parameter(
        {.name = fmt::format("p{}", i), .shape = {kElements}, .group = *group, .initial = Normal{}});
    SLUICE_RETURN_IF_ERROR(added.status());
    parameters.push_back(*added);
  }
  const Result<SealReport> report = (*engine)->seal();
  SLUICE_RETURN_IF_ERROR(report.status());

  // Parameter i's gradient starts at its i-th value.
  std::vector<float> values(kElements + kParameters);
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>((i * 2654435761 + step * 40503) >> 8 & 0xffff) * 0x1p-15f - 1.0f;
    Result<Pass> pass = (*engine)->begin_step();
    SLUICE_RETURN_IF_ERROR(pass.status());
    for (std::uint32_t i = 0; i < kParameters; ++i)
      SLUICE_RETURN_IF_ERROR(pass->fetch({&parameters[i], 1}).status());
    for (std::uint32_t i = kParameters; i-- > 0;) {
      SLUICE_RETURN_IF_ERROR(pass->fetch({&parameters[i], 1}).status());
      SLUICE_RETURN_IF_ERROR(pass->add_gradient(parameters[i], Gradient::f32(values.data() + i)));
    }
    SLUICE_RETURN_IF_ERROR(pass->step().status());
  }

  kernels::Hasher hasher;
  for (const ParameterId parameter : parameters)
    for (const View view : {View::kMaster, View::kMoment1, View::kMoment2}) {
      SLUICE_RETURN_IF_ERROR((*engine)->read(parameter, view, {0, kElements}, values.data(), DType::kF32));
      hasher.update(values.data(), std::uint64_t{kElements} * sizeof(float));
    }
  const Stats stats = (*engine)->stats();
  outcome = {.state_hash = hasher.digest(),
             .peak_bytes = status_bytes("VmHWM") + status_bytes("HugetlbPages"),
             .reserved_bytes = stats.host_reserved_bytes + stats.device_reserved_bytes,
             .own_bytes = values.size() * sizeof(float),
             .least_host_bytes = report->least_host_bytes,
             .chunks = report->chunks};
  return (*engine)->close();
}

/// Trains in a child, after `enter`, which says "" when the child is where it should be.
/// Returns: "", or what went wrong.
std::string train_in_child(const EngineOptions& options, const std::function<std::string()>& enter,
                           Outcome& outcome) {
  const std::string said = sim::in_child([&]() -> std::string {
    if (const std::string refused = enter(); !refused.empty()) return refused;
    Outcome own;
    if (const Status trained = train(options, own); !trained.ok()) return trained.to_string();
    return fmt::format("{} {} {} {} {} {}", own.state_hash, own.peak_bytes, own.reserved_bytes, own.own_bytes,
                       own.least_host_bytes, own.chunks);
  });
  std::istringstream fields(said);
  fields >> outcome.state_hash >> outcome.peak_bytes >> outcome.reserved_bytes >> outcome.own_bytes >>
      outcome.least_host_bytes >> outcome.chunks;
  return fields ? "" : said;
}

std::string anywhere() { return ""; }

EngineOptions options_on(const std::string& directory) {
  EngineOptions options;
  options.directories = {directory};
  options.chunk_elements = 1 << 20;
  options.keep_commits = 0;
  // 3 x (record 12 MiB + gradient 4 MiB) + 2 x weights 2 MiB.
  options.host_budget_bytes = 52 * kMiB;
  options.device_budget_bytes = kDeviceBytes;
  options.max_fetch_bytes = std::uint64_t{kElements} * 2;
  return options;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;
#else
constexpr bool kShadowed = false;
#endif
constexpr const char* kWhyShadowed = "a sanitizer's shadow memory is not the engine's";

TEST(Memory, BeyondTheBudgetsStaysBelowSixtyFourMebibytes) {
  if (kShadowed) GTEST_SKIP() << kWhyShadowed;
  const sim::TemporaryDirectory directory;
  Outcome run;
  ASSERT_EQ(train_in_child(options_on(directory.path()), anywhere, run), "");
  EXPECT_EQ(run.least_host_bytes, 52 * kMiB);
  EXPECT_GT(kStateBytes, 10 * run.least_host_bytes);
  const std::uint64_t beyond = run.peak_bytes - std::min(run.peak_bytes, run.reserved_bytes + run.own_bytes);
  RecordProperty("beyond_bytes", std::to_string(beyond));
  EXPECT_LE(beyond, 64 * kMiB + 1024 * run.chunks)
      << "peak " << run.peak_bytes << ", reserved " << run.reserved_bytes << ", test " << run.own_bytes;
}

/// A memory control group below the one that this process runs in, removed at the end.
class MemoryGroup {
 public:
  explicit MemoryGroup(std::uint64_t limit_bytes) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line) && path_.empty();) {
      // "4:memory:/path" in version 1, "0::/path" in version 2.
      const std::size_t second = line.find(':', line.find(':') + 1);
      const std::string controllers = line.substr(line.find(':') + 1, second - line.find(':') - 1);
      const std::string group = line.substr(second + 1);
      if (controllers == "memory")
        make("/sys/fs/cgroup/memory" + group, "memory.limit_in_bytes", limit_bytes);
      else if (controllers.empty())
        make("/sys/fs/cgroup" + group, "memory.max", limit_bytes);
    }
  }
  ~MemoryGroup() {
    if (!path_.empty()) ::rmdir(path_.c_str());
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  bool made() const { return !path_.empty(); }
  const std::string& reason() const { return reason_; }
  /// Moves this process in. Returns: "", or why not.
  std::string enter() const {
    std::ofstream processes(path_ + "/cgroup.procs");
    processes << ::getpid() << std::flush;
    std::stringstream groups;
    groups << std::ifstream("/proc/self/cgroup").rdbuf();
    return processes && groups.str().find(fs::path(path_).filename()) != std::string::npos
               ? ""
               : "cannot enter " + path_;
  }

 private:
  void make(const std::string& parent, const std::string& limit, std::uint64_t limit_bytes) {
    const std::string path = fmt::format("{}/sluice-test-{}", parent, ::getpid());
    std::error_code failed;
    if (!fs::create_directory(path, failed)) {
      reason_ = path + ": " + failed.message();
      return;
    }
    std::ofstream file(path + "/" + limit, std::ios::in | std::ios::out);
    file << limit_bytes << std::flush;
    if (file) {
      path_ = path;
    } else {
      reason_ = path + "/" + limit + " cannot be written";
      ::rmdir(path.c_str());
    }
  }

  std::string path_;
  std::string reason_ = "no memory control group is visible";
};

bool direct_io_works(const std::string& path) {
  const Result<io::Directory> directory = io::Directory::open(path, io::Access::kReadWrite);
  if (!directory.ok()) return false;
  const Result<io::File> file = io::File::open(*directory, "probe", {.creation = io::Creation::kExclusive});
  return file.ok() && directory->remove("probe").ok() && file->direct();
}

// A control group counts the page cache of its processes too. The limit, a third of the state, holds all the
// same because the container is read and written with O_DIRECT, which leaves nothing in the cache: what is
// counted is the process itself, budgets and all. On a file system that takes no direct I/O the test says nothing, and is
// skipped.
TEST(Memory, OfAControlGroupSmallerThanTheStateIsEnough) {
  if (kShadowed) GTEST_SKIP() << kWhyShadowed;
  const MemoryGroup group(192 * kMiB);
  if (!group.made()) GTEST_SKIP() << group.reason();
  static_assert(192 * kMiB * 3 <= kStateBytes);
  const sim::TemporaryDirectory directory;
  if (!direct_io_works(directory.path())) GTEST_SKIP() << directory.path() << " takes no direct I/O";
  EngineOptions options = options_on(directory.path());
  options.host_budget_bytes = kUnlimited;
  options.device_budget_bytes = kUnlimited;
  Outcome unlimited;
  ASSERT_EQ(train_in_child(options, anywhere, unlimited), "");
  Outcome limited;
  const std::string said = train_in_child(
      options_on(directory.path()), [&] { return group.enter(); }, limited);
  if (said.rfind("cannot enter", 0) == 0) GTEST_SKIP() << said;
  ASSERT_EQ(said, "");
  EXPECT_EQ(limited.state_hash, unlimited.state_hash);
  EXPECT_LE(limited.peak_bytes, 192 * kMiB);
}

}  // namespace
}  // namespace sluice
