#include "peers/fio.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sluice::peers {
namespace {

constexpr int kLookMs = 100;  // how often a running fio is asked whether to stop it
constexpr std::size_t kLastWords = 400;

std::string_view last_words(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text.substr(text.size() - std::min(text.size(), kLastWords));
}

std::vector<std::string> arguments(const std::string& fio, std::string_view engine, const Work& work) {
  const std::string_view order = work.pattern == Pattern::kRandom ? "rand" : "";
  const std::string_view mix = work.mix == Mix::kRead ? "read" : work.mix == Mix::kWrite ? "write" : "rw";
  std::vector<std::string> all = {
      fio,
      "--name=sluice",
      fmt::format("--filename=/proc/{}/fd/{}", getpid(), work.fd),
      "--allow_file_create=0",
      fmt::format("--size={}", work.file_bytes / work.block_bytes * work.block_bytes),
      fmt::format("--rw={}{}", order, mix),
      fmt::format("--bs={}", work.block_bytes),
      fmt::format("--iodepth={}", work.depth),
      fmt::format("--ioengine={}", engine),
      "--direct=1",
      "--mem=malloc",
      "--thread",
      "--gtod_reduce=1",
      fmt::format("--runtime={}ms", std::max<std::int64_t>(1, static_cast<std::int64_t>(work.seconds * 1e3))),
      "--output-format=json"};
  if (work.bytes_max == std::numeric_limits<std::uint64_t>::max()) {
    all.push_back("--time_based");
  } else {
    all.push_back(fmt::format("--io_size={}", work.bytes_max));
  }
  if (engine == "io_uring") all.insert(all.end(), {"--fixedbufs=1", "--registerfiles=1"});
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment() {
  // Its large allocations then ask for huge pages, as all buffers here do. Source: "Memory Related Tunables" of
  // the GNU C Library's manual; older libraries pass over what they do not know.
  std::vector<std::string> all = {"GLIBC_TUNABLES=glibc.malloc.hugetlb=1"};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("GLIBC_TUNABLES=")) all.emplace_back(*variable);
  }
  return all;
}

/// Reads a child's words to their end, or kills it when it is to stop.
std::string read_all(int fd, pid_t child, bool (*stopped)()) {
  std::string text;
  std::array<char, 4096> buffer;
  for (;;) {
    pollfd watched{fd, POLLIN, 0};
    if (::poll(&watched, 1, kLookMs) > 0) {
      const ssize_t count = ::read(fd, buffer.data(), buffer.size());
      if (count == 0 || (count < 0 && errno != EINTR)) return text;
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
    }
    if (stopped != nullptr && stopped()) ::kill(child, SIGKILL);
  }
}

}  // namespace

std::optional<std::string> find_fio() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::string candidate = std::string(folder) + "/fio";
    if (!folder.empty() && ::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

Result<Moved> parse_fio(std::string_view report) {
  report.remove_prefix(std::min(report.find('{'), report.size()));
  const auto damaged = [] { return Status(Code::kDataLoss, "fio's report is not that of one job of fio 3"); };
  try {
    const auto job = nlohmann::json::parse(report).at("jobs").at(0);
    if (const int error = job.at("error").get<int>(); error != 0) return status_from_errno(error, "fio");
    Moved moved;
    double milliseconds = 0;
    for (const char* direction : {"read", "write"}) {
      moved.bytes += job.at(direction).at("io_bytes").get<std::uint64_t>();
      milliseconds = std::max(milliseconds, job.at(direction).at("runtime").get<double>());
    }
    moved.seconds = milliseconds / 1e3;
    // In per cent of a CPU over the job's life.
    const double life_s = job.at("job_runtime").get<double>() / 1e3;
    moved.cpu = {.user = job.at("usr_cpu").get<double>() / 100 * life_s,
                 .system = job.at("sys_cpu").get<double>() / 100 * life_s};
    if (moved.bytes == 0 || !(moved.seconds > 0)) return damaged();
    return moved;
  } catch (const nlohmann::json::exception&) {
    return damaged();
  }
}

Result<Moved> run_fio(const std::string& fio, std::string_view engine, const Work& work) {
  std::array<int, 2> pipe = {};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return status_from_errno(errno, "pipe for fio's report");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  std::vector<std::string> words = arguments(fio, engine, work);
  std::vector<std::string> variables = environment();
  pid_t child = 0;
  const int error = ::posix_spawn(&child, fio.c_str(), &actions, nullptr, pointers(words).data(),
                                  pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  if (error != 0) {
    ::close(pipe[0]);
    return Status(Code::kUnavailable, status_from_errno(error, "starting " + fio).message(), error);
  }
  const std::string report = read_all(pipe[0], child, work.stopped);
  ::close(pipe[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (work.stopped != nullptr && work.stopped()) return Status(Code::kAborted, "fio was stopped");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return Status(Code::kUnavailable,
                  fmt::format("{} with engine {} failed: {}", fio, engine, last_words(report)));
  }
  SLUICE_ASSIGN_OR_RETURN(Moved moved, parse_fio(report));
  moved.how = engine == "io_uring" ? "fixed buffers, fixed file" : "plain buffers and file";
  return moved;
}

}  // namespace sluice::peers
