#include "tools/interrupt.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>

namespace sluice::tools {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t g_signal = 0;

void note(int signal) {
  g_signal = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  g_signal = 0;
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &previous_[i]);
    if (previous_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

int Interrupt::signal() { return g_signal; }

Status Interrupt::check() {
  if (signal() == 0) return {};
  return {Code::kAborted, std::string("interrupted by ") + strsignal(signal())};
}

}  // namespace sluice::tools
