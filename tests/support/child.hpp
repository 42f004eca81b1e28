#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

namespace sluice::sim {

/// Runs `body` in a forked child. Returns: what it returned; "died: …" when it did not get that far.
std::string in_child(const std::function<std::string()>& body);

/// A forked process that runs `body`, tells what it returned, then stays until kill() without any destructor.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// What the body returned; "" if it died before.
  /// Blocks: until the body has returned.
  const std::string& report();
  pid_t pid() const { return pid_; }
  /// SIGKILL, and waits for the end.
  void kill();

 private:
  pid_t pid_ = -1;
  int reports_ = -1;  // the pipe's end, until it was read
  std::string report_;
};

/// Gives up root for the rest of this process. Returns: whether it is an ordinary user afterwards.
bool become_nobody();

/// Mounts a fresh tmpfs of this size on `path`, for this process alone; only in a child.
/// Returns: whether the system allows it.
bool mount_tmpfs(const std::string& path, std::uint64_t bytes);
/// Makes what mount_tmpfs() mounted read-only.
bool remount_read_only(const std::string& path);

}  // namespace sluice::sim
