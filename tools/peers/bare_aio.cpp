#include "peers/bare_aio.hpp"

#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "peers/bare_loop.hpp"

namespace sluice::peers {
namespace {

/// A context of the kernel's, which ends with this.
class Context {
 public:
  ~Context() {
    if (id_ != 0) syscall(SYS_io_destroy, id_);
  }
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Status open(std::uint32_t depth) {
    if (syscall(SYS_io_setup, depth, &id_) == 0) return {};
    return Status(Code::kUnavailable,
                  status_from_errno(errno, "io_setup(2)").message() + "; see sysctl fs.aio-max-nr", errno);
  }
  long submit(iocb** first, long count) { return syscall(SYS_io_submit, id_, count, first); }
  long wait(std::vector<io_event>& events) {
    return syscall(SYS_io_getevents, id_, 1, events.size(), events.data(), nullptr);
  }

 private:
  aio_context_t id_ = 0;
};

}  // namespace

Result<Moved> run_bare_aio(const Work& work) {
  Context context;
  SLUICE_RETURN_IF_ERROR(context.open(work.depth));
  std::vector<iocb> requests(work.depth);
  std::vector<io_event> events(work.depth);
  std::vector<iocb*> unsent;
  unsent.reserve(work.depth);
  for (std::uint32_t i = 0; i < work.depth; ++i) {
    requests[i] = {};
    requests[i].aio_fildes = static_cast<std::uint32_t>(work.fd);
    requests[i].aio_buf = reinterpret_cast<std::uint64_t>(work.memory.data() + i * work.block_bytes);
    requests[i].aio_nbytes = work.block_bytes;
    requests[i].aio_data = i;
  }

  BareLoop loop(work);
  Status failure;
  const auto prepare = [&](iocb& request) {
    if (!loop.begin()) return;
    const BlockChoice::Next next = loop.next();
    request.aio_lio_opcode = next.write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
    request.aio_offset = static_cast<std::int64_t>(next.block * work.block_bytes);
    unsent.push_back(&request);
  };
  for (iocb& request : requests) prepare(request);
  while (loop.in_flight() > 0) {
    std::size_t sent = 0;
    while (sent < unsent.size()) {
      const long taken = context.submit(unsent.data() + sent, static_cast<long>(unsent.size() - sent));
      if (taken >= 0) {
        sent += static_cast<std::size_t>(taken);
      } else if (errno == EAGAIN && loop.in_flight() > unsent.size() - sent) {
        break;  // what finishes makes room
      } else if (errno != EAGAIN && errno != EINTR) {
        const int error = errno;
        for (; sent < unsent.size(); ++sent) failure = loop.finish(-error);
      }
    }
    unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(sent));
    if (loop.in_flight() == 0) break;
    const long count = context.wait(events);
    if (count < 0 && errno != EINTR) return status_from_errno(errno, "io_getevents(2)");
    loop.look_at_the_clock();
    for (long i = 0; i < count; ++i) {
      const io_event& event = events[static_cast<std::size_t>(i)];
      if (const Status status = loop.finish(event.res); !status.ok()) failure = status;
      prepare(requests[event.data]);
    }
  }
  if (!failure.ok()) return failure;
  return loop.moved("plain buffers and file");
}

}  // namespace sluice::peers
