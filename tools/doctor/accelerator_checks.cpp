#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <sstream>

#include "tools/doctor/checks.hpp"
#include "tools/pseudo_files.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

// CUresult and cudaError_t agree on these.
constexpr int kInsufficientDriver = 35;
constexpr int kNoDevice = 100;

/// A shared library that is there or not: nothing is linked for it.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }
  template <class Function>
  Function* find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, name));
  }

 private:
  void* handle_;
};

void ask_driver(GpuFacts& facts) {
  const Library cuda("libcuda.so.1");
  facts.library = static_cast<bool>(cuda);
  const auto init = cuda.find<int(unsigned)>("cuInit");
  const auto get_count = cuda.find<int(int*)>("cuDeviceGetCount");
  const auto get_name = cuda.find<int(char*, int, int)>("cuDeviceGetName");
  const auto get_bytes = cuda.find<int(std::size_t*, int)>("cuDeviceTotalMem_v2");
  if (init == nullptr || get_count == nullptr || get_name == nullptr || get_bytes == nullptr) {
    facts.library = false;
    return;
  }
  int count = 0;
  facts.error = init(0);
  if (facts.error == 0) facts.error = get_count(&count);
  // Where it fails it leaves its output untouched.
  for (int device = 0; facts.error == 0 && device < count; ++device) {
    std::array<char, 256> name = {};
    std::size_t bytes = 0;
    if (get_name(name.data(), static_cast<int>(name.size()) - 1, device) != 0 ||
        get_bytes(&bytes, device) != 0)
      continue;
    facts.devices.push_back(fmt::format("{} ({})", name.data(), size_text(bytes)));
  }
}

Check check_gpu(const Machine& machine) {
  GpuFacts facts{.driver = first_line(machine.root + "/proc/driver/nvidia/version")};
  for (const std::string& name : names_in(machine.root + "/dev")) {
    if (name.starts_with("nvidia")) facts.nodes.push_back(name);
  }
  ask_driver(facts);
  return judge_gpu(facts);
}

Check check_nccl() {
  const Library nccl("libnccl.so.2");
  const auto get_version = nccl.find<int(int*)>("ncclGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return {"NCCL", CheckStatus::kMissing, "libnccl.so.2 is not there",
            "apt install libnccl2, or its folder in LD_LIBRARY_PATH; needed for ranks on GPUs alone"};
  }
  return {"NCCL", CheckStatus::kOk, "version " + nccl_version_text(version), ""};
}

std::string find_program(const char* name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string program = folder + "/" + name;
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

Check check_mpi() {
  std::string starter = find_program("mpirun");
  if (starter.empty()) starter = find_program("mpiexec");
  std::string found;
  // Open MPI's, MPICH's, and what is there for compiling.
  for (const char* name : {"libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"}) {
    if (found.empty() && Library(name)) found = name;
  }
  const bool ok = !starter.empty() && !found.empty();
  return {"MPI", ok ? CheckStatus::kOk : CheckStatus::kMissing,
          fmt::format("{}; {}", starter.empty() ? "no mpirun in PATH" : starter,
                      found.empty() ? "no libmpi" : found),
          ok ? "" : "apt install openmpi-bin libopenmpi3; needed for ranks in several processes alone"};
}

}  // namespace

std::vector<Check> check_accelerators(const Machine& machine) {
  return {check_gpu(machine), check_nccl(), check_mpi()};
}

Check judge_gpu(const GpuFacts& facts) {
  const std::string driver = facts.driver.empty() ? "no kernel module of NVIDIA" : facts.driver;
  const std::string nodes =
      facts.nodes.empty() ? "no /dev/nvidia*" : fmt::format("/dev: {}", fmt::join(facts.nodes, ", "));
  const auto missing = [&](const std::string& why, const char* remedy) {
    return Check{"GPU", CheckStatus::kMissing, fmt::format("{}; {}; {}", why, driver, nodes), remedy};
  };
  if (!facts.library) {
    return facts.driver.empty()
               ? missing("libcuda.so.1 is not there",
                         "none needed without a GPU: the host device is used; with one, install its driver")
               : missing("libcuda.so.1 is not there",
                         "the driver's user part (libcuda1), or --gpus all for a container");
  }
  if (facts.error == kInsufficientDriver || facts.error == kNoDevice ||
      (facts.error == 0 && facts.devices.empty())) {
    if (!facts.driver.empty() && facts.nodes.empty())
      return missing("no GPU is visible", "give the container its GPUs: --gpus all");
    if (!facts.driver.empty())
      return missing("no GPU is visible", "unset CUDA_VISIBLE_DEVICES, or update the driver");
    return missing("no GPU",
                   "none needed without a GPU: the host device is used; with one, load its driver "
                   "(modprobe nvidia)");
  }
  if (facts.error != 0)
    return missing(fmt::format("the driver failed with {}", facts.error),
                   "nvidia-smi; then reload the driver");
  return {"GPU", CheckStatus::kOk, fmt::format("{}; {}; {}", fmt::join(facts.devices, ", "), driver, nodes),
          ""};
}

// NCCL_VERSION_CODE: major * 1000 + minor * 100 + patch up to 2.8, major * 10000 + … from 2.9 on.
std::string nccl_version_text(int version) {
  const int major_unit = version < 10000 ? 1000 : 10000;
  return fmt::format("{}.{}.{}", version / major_unit, version % major_unit / 100, version % 100);
}

}  // namespace sluice::tools
