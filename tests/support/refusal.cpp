#include "support/refusal.hpp"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <future>
#include <thread>

namespace sluice::sim {

namespace {

/// A filter that answers refused calls with what `answer` says of them, and lets the others through.
std::vector<sock_filter> make_filter(const std::vector<Refusal>& refusals,
                                     const std::function<std::uint32_t(const Refusal&)>& answer) {
  std::vector<sock_filter> program;
  const auto load = [&](std::size_t at) {
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(at)));
  };
  for (const Refusal& refusal : refusals) {
    load(offsetof(seccomp_data, nr));
    const bool always = refusal.argument == Refusal::kAlways;
    const bool any_descriptor = refusal.descriptor == Refusal::kAlways;
    // A check is a load and a jump; one that fails skips the checks behind it and the answer.
    int checks = (any_descriptor ? 0 : 1) + (refusal.command == 0 ? 0 : 1) + (always ? 0 : 1);
    const auto skip = [&] { return static_cast<std::uint8_t>(2 * checks-- + 1); };
    program.push_back(
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.call), 0, skip()));
    if (!any_descriptor) {
      load(offsetof(seccomp_data, args));
      program.push_back(
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<std::uint32_t>(refusal.descriptor), 0, skip()));
    }
    if (refusal.command != 0) {
      load(offsetof(seccomp_data, args) + sizeof(std::uint64_t));
      program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refusal.command, 0, skip()));
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
    program.push_back(BPF_STMT(BPF_RET | BPF_K, answer(refusal)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return program;
}

/// Answers the calls that `listener` tells of: the first `times` with the error, then as the kernel would.
void supervise(int listener, int error, int times) {
  for (;;) {
    seccomp_notif call = {};
    if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
      if (errno == EINTR) continue;
      return;
    }
    seccomp_notif_resp answer = {};
    answer.id = call.id;
    if (times-- > 0)
      answer.error = -error;
    else
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

}  // namespace

bool refuse(const std::vector<Refusal>& refusals) {
  std::vector<sock_filter> program = make_filter(refusals, [](const Refusal& refusal) {
    return SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(refusal.error);
  });
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

bool refuse_at_first(const Refusal& refusal, int times) {
  std::vector<sock_filter> program =
      make_filter({refusal}, [](const Refusal&) { return SECCOMP_RET_USER_NOTIF; });
  const sock_fprog filter = {static_cast<unsigned short>(program.size()), program.data()};
  // The filter holds for this thread alone; the one that answers was there before.
  std::promise<int> listening;
  std::thread([listener = listening.get_future(), error = refusal.error, times]() mutable {
    if (const int descriptor = listener.get(); descriptor >= 0) supervise(descriptor, error, times);
  }).detach();
  long listener = -1;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
    listener = ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  listening.set_value(static_cast<int>(listener));
  return listener >= 0;
}

}  // namespace sluice::sim
