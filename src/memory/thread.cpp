#include "memory/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace sluice::memory {

Result<std::thread> start_thread(const std::string& name, std::function<void()> body) {
  sigset_t every_signal, callers;
  sigfillset(&every_signal);
  // The child takes over the mask of its creator.
  pthread_sigmask(SIG_SETMASK, &every_signal, &callers);
  std::thread thread;
  Status status;
  try {
    thread = std::thread([cut_name = name.substr(0, 15), run = std::move(body)] {
      pthread_setname_np(pthread_self(), cut_name.c_str());
      run();
    });
  } catch (const std::system_error& error) {
    status = Status(Code::kResourceExhausted, "starting thread " + name + ": " + error.what(),
                    error.code().value());
  }
  pthread_sigmask(SIG_SETMASK, &callers, nullptr);
  if (!status.ok()) return status;
  return thread;
}

}  // namespace sluice::memory
