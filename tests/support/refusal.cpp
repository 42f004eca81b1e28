#include "support/refusal.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include <cstddef>

namespace sluice::sim {

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
    const bool any_descriptor = refusal.descriptor == Refusal::kAlways;
    const auto to_the_next = static_cast<std::uint8_t>(always ? 1 : 3);
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.call), 0,
                               static_cast<std::uint8_t>(to_the_next + (any_descriptor ? 0 : 2))));
    if (!any_descriptor) {
      load(offsetof(seccomp_data, args));
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.descriptor), 0,
                                 to_the_next));
    }
    if (!always) {
      load(offsetof(seccomp_data, args) + sizeof(std::uint64_t) * static_cast<std::size_t>(refusal.argument));
      if (refusal.any_of_bits != 0) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, refusal.any_of_bits, 0, 1));
      } else if (refusal.equals != 0) {
        program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.equals, 0, 1));
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

}  // namespace sluice::sim
