#include "run_command.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
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

}  // namespace

nlohmann::json CommandResult::json() const {
  auto parsed = nlohmann::json::parse(output, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << "stdout: " << output << "\nstderr: " << errors;
  return parsed.is_object() ? parsed : nlohmann::json::object();
}

CommandResult run_command(const std::vector<std::string>& arguments,
                          const std::function<void(pid_t, const std::string&)>& on_errors) {
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
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    poll(streams.data(), streams.size(), -1);
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
  waitpid(child, &status, 0);
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
