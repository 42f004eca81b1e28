#include "support/child.hpp"

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace sluice::sim {

Child::Child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("no child");
  if (pid_ == 0) {
    const std::string report = body();
    if (::write(ends[1], report.data(), report.size()) < 0) ::_exit(1);
    ::close(ends[1]);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  reports_ = ends[0];
}

Child::~Child() {
  if (reports_ >= 0) ::close(reports_);
  kill();
}

const std::string& Child::report() {
  if (reports_ < 0) return report_;
  std::array<char, 4096> part;
  for (ssize_t bytes; (bytes = ::read(reports_, part.data(), part.size())) > 0;) {
    report_.append(part.data(), static_cast<std::size_t>(bytes));
  }
  ::close(std::exchange(reports_, -1));
  return report_;
}

void Child::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::string in_child(const std::function<std::string()>& body) {
  std::array<int, 2> pipe = {};
  if (::pipe(pipe.data()) != 0) return "died: no pipe";
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = body();
    ::_exit(::write(pipe[1], said.data(), said.size()) == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(pipe[1]);
  std::string said;
  std::array<char, 4096> part;
  for (ssize_t got; (got = ::read(pipe[0], part.data(), part.size())) > 0;)
    said.append(part.data(), static_cast<std::size_t>(got));
  ::close(pipe[0]);
  int outcome = 0;
  ::waitpid(child, &outcome, 0);
  return outcome == 0 ? said : "died: " + std::to_string(outcome) + " " + said;
}

bool become_nobody() {
  constexpr uid_t kNobody = 65534;
  if (::geteuid() != 0) return true;
  return ::setgroups(0, nullptr) == 0 && ::setgid(kNobody) == 0 && ::setuid(kNobody) == 0;
}

bool mount_tmpfs(const std::string& path, std::uint64_t bytes) {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("none", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
}

bool remount_read_only(const std::string& path) {
  return ::mount("none", path.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

}  // namespace sluice::sim
