// Runs a libFuzzer harness without libFuzzer.
//   fuzz_NAME CORPUS_DIRECTORY   all files, then mutations for SLUICE_FUZZ_SECONDS (1) from SLUICE_TEST_SEED
//   fuzz_NAME FILE…              these files alone
// The harness runs in a child that leaves its input in shared memory, so whatever ends it (a signal, a
// sanitizer, an endless loop, an allocation without bound), the parent can write that input down.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "mutate.hpp"
#include "support/sim_world.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace sluice::fuzz {
namespace {

constexpr unsigned kSecondsMaxPerInput = 20;
constexpr rlim_t kMemoryBytesMax = rlim_t{2} << 30;
constexpr std::uint64_t kRunsMin = 1000;

struct Running {
  std::uint64_t run = 0;
  std::size_t bytes = 0;
  std::uint8_t input[kInputBytesMax];
};

Input read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  Input input{std::istreambuf_iterator<char>(file), {}};
  if (!file || input.size() > kInputBytesMax) {
    std::fprintf(stderr, "%s: not a file of at most %zu bytes\n", path.c_str(), kInputBytesMax);
    std::exit(2);
  }
  return input;
}

void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // their shadows are larger than any limit
  const rlimit limit{kMemoryBytesMax, kMemoryBytesMax};
  ::setrlimit(RLIMIT_AS, &limit);
#endif
}

void run(Running& running, const Input& input) {
  running.bytes = input.size();
  std::copy(input.begin(), input.end(), running.input);
  // Of exactly this size, so that a sanitizer sees the first byte read beyond it.
  const auto exact = std::make_unique<std::uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), exact.get());
  ::alarm(kSecondsMaxPerInput);
  LLVMFuzzerTestOneInput(exact.get(), input.size());
  ::alarm(0);
  ++running.run;
}

std::chrono::duration<double> wanted_time() {
  const char* given = std::getenv("SLUICE_FUZZ_SECONDS");
  return std::chrono::duration<double>(given == nullptr ? 1.0 : std::strtod(given, nullptr));
}

/// Mutation number i is a function of the seed and i alone: time decides only how many there are.
void run_mutations(Running& running, const std::vector<Input>& corpus, std::uint64_t seed) {
  const auto end = std::chrono::steady_clock::now() + wanted_time();
  for (std::uint64_t i = 0; i < kRunsMin || std::chrono::steady_clock::now() < end; ++i) {
    std::seed_seq mix{seed, seed >> 32, i, i >> 32};
    std::mt19937_64 random(mix);
    run(running, mutate(corpus, random));
  }
}

int report_crash(const Running& running, const std::string& harness, int outcome) {
  const std::string how = WIFSIGNALED(outcome) ? std::string(::strsignal(WTERMSIG(outcome)))
                                               : "exit " + std::to_string(WEXITSTATUS(outcome));
  const std::string name = "crash-" + harness + "-" + std::to_string(running.run);
  std::ofstream file(name, std::ios::binary);
  file.write(reinterpret_cast<const char*>(running.input), static_cast<std::streamsize>(running.bytes));
  file.close();
  std::fprintf(stderr, "%s: run %llu died (%s); the input is %s%s\n", harness.c_str(),
               static_cast<unsigned long long>(running.run), how.c_str(), file ? "in " : "lost, no room for ",
               name.c_str());
  return 1;
}

}  // namespace

int drive(const std::vector<std::filesystem::path>& paths, const std::string& harness) {
  const bool mutating = paths.size() == 1 && std::filesystem::is_directory(paths[0]);
  std::vector<std::filesystem::path> files = paths;
  if (mutating) files.assign(std::filesystem::directory_iterator(paths[0]), {});
  std::sort(files.begin(), files.end());  // a directory's order is not repeatable
  std::vector<Input> corpus;
  for (const auto& file : files) corpus.push_back(read_file(file));
  if (corpus.empty()) {
    std::fprintf(stderr, "%s: nothing to run\n", harness.c_str());
    return 2;
  }
  const std::uint64_t seed = sim::seed_or(std::random_device{}());

  void* shared = ::mmap(nullptr, sizeof(Running), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 2;
  Running& running = *new (shared) Running;
  const pid_t child = ::fork();
  if (child < 0) return 2;
  if (child == 0) {
    limit_memory();
    for (const Input& input : corpus) run(running, input);
    if (mutating) run_mutations(running, corpus, seed);
    return 0;
  }
  int outcome = 0;
  if (::waitpid(child, &outcome, 0) != child) return 2;
  std::printf("%s: %zu files, %llu runs, SLUICE_TEST_SEED=%llu\n", harness.c_str(), corpus.size(),
              static_cast<unsigned long long>(running.run), static_cast<unsigned long long>(seed));
  return outcome == 0 ? 0 : report_crash(running, harness, outcome);
}

}  // namespace sluice::fuzz

int main(int count, char** arguments) {
  const std::string program = std::filesystem::path(arguments[0]).filename();
  const std::string prefix = "fuzz_";
  return sluice::fuzz::drive({arguments + 1, arguments + count},
                             program.rfind(prefix, 0) == 0 ? program.substr(prefix.size()) : program);
}
