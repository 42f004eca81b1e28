#include "tools/interrupt.hpp"

#include <array>
#include <csignal>
#include <cstring>
#include <string>

namespace sluice::tools {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t g_signal = 0;

void note(int signal) {
  g_signal = signal;
  for (const int other : kSignals) std::signal(other, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
}

Interrupt::~Interrupt() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
}

Status Interrupt::check() {
  const int signal = g_signal;
  if (signal == 0) return {};
  return {Code::kAborted, std::string("interrupted by ") + strsignal(signal)};
}

}  // namespace sluice::tools
