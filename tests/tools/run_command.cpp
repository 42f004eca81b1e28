#include "run_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include <gtest/gtest.h>

namespace sluice::tools {
namespace {

/// Reads what there is; false at the end.
bool read_some(int fd, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(fd, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
  return count > 0;
}

/// Waits for output, at most to the end of the process's life, and then kills it.
/// Returns: of how many streams something has come.
int poll_until_killed(std::array<pollfd, 2>& streams, pid_t process,
                      std::chrono::steady_clock::time_point start,
                      std::optional<std::chrono::steady_clock::duration>& life) {
  if (!life) return poll(streams.data(), streams.size(), -1);
  const auto left = start + *life - std::chrono::steady_clock::now();
  const auto left_ns = std::max<std::int64_t>(0, std::chrono::nanoseconds(left).count());
  const timespec patience = {.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
  const int ready = ppoll(streams.data(), streams.size(), &patience, nullptr);
  if (std::chrono::steady_clock::now() - start >= *life) {
    kill(process, SIGKILL);
    life.reset();
  }
  return ready;
}

}  // namespace

nlohmann::json CommandResult::json() const {
  auto parsed = nlohmann::json::parse(output, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << "stdout: " << output << "\nstderr: " << errors;
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::function<void(pid_t, const std::string&)>& on_errors,
                          std::optional<std::chrono::steady_clock::duration> life) {
  std::vector<char*> argv = {const_cast<char*>(SLUICE_COMMAND)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> out = {};
  std::array<int, 2> err = {};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0)
    throw std::runtime_error("pipe2");
  const pid_t child = fork();
  if (child == 0) {
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execv(SLUICE_COMMAND, argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);

  CommandResult result;
  std::array<pollfd, 2> streams = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  const auto start = std::chrono::steady_clock::now();
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (poll_until_killed(streams, child, start, life) == 0) continue;
    if (streams[0].revents != 0 && !read_some(streams[0].fd, result.output)) streams[0].fd = -1;
    if (streams[1].revents != 0) {
      if (!read_some(streams[1].fd, result.errors)) {
        streams[1].fd = -1;
      } else if (on_errors) {
        on_errors(child, result.errors);
      }
    }
  }
  close(out[0]);
  close(err[0]);
  int status = 0;
  rusage usage = {};
  wait4(child, &status, 0, &usage);
  result.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) << 10;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return result;
}

ScratchDirectory::ScratchDirectory()
    : path_((std::filesystem::current_path() / "tools_test.XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp " + path_);
}

ScratchDirectory::~ScratchDirectory() { std::filesystem::remove_all(path_); }

std::vector<std::string> ScratchDirectory::names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_))
    names.push_back(entry.path().filename());
  return names;
}

}  // namespace sluice::tools
