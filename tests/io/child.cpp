#include "child.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>

namespace sluice::io {

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

bool refuse(const std::vector<Refusal>& refusals) {
  std::vector<sock_filter> program;
  const auto load = [&](std::size_t at) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(at)));
  };
  for (const Refusal& refusal : refusals) {
    const sock_filter answer =
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(refusal.error));
    load(offsetof(seccomp_data, nr));
    const bool always = refusal.argument == Refusal::kAlways;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.call), 0,
                               static_cast<std::uint8_t>(always ? 1 : 3)));
    if (!always) {
      load(offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(refusal.argument));
      if (refusal.any_of_bits != 0) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, refusal.any_of_bits, 0, 1));
      } else {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, refusal.below, 1, 0));
      }
    }
    program.push_back(answer);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace sluice::io
