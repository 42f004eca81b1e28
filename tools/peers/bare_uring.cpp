#include "peers/bare_uring.hpp"

#include <liburing.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <vector>

#include "peers/bare_loop.hpp"

namespace sluice::peers {
namespace {

/// A ring that ends with this.
class Ring {
 public:
  Ring() = default;
  ~Ring() {
    if (open_) io_uring_queue_exit(&ring_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  Status open(std::uint32_t depth) {
    struct Setup {
      unsigned flags;
      const char* name;
    };
    constexpr std::array kSetups = {
        Setup{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_COOP_TASKRUN,
              "single_issuer defer_taskrun coop_taskrun"},
        Setup{IORING_SETUP_COOP_TASKRUN, "coop_taskrun"}, Setup{0, "no flags"}};
    int error = 0;
    for (const Setup& setup : kSetups) {
      error = io_uring_queue_init(depth, &ring_, setup.flags);
      open_ = error == 0;
      how_ = setup.name;
      if (error != -EINVAL) break;
    }
    if (open_) return {};
    return Status(Code::kUnavailable, status_from_errno(-error, "io_uring_setup(2)").message(), -error);
  }

  void register_all(const Work& work) {
    std::vector<iovec> buffers(work.depth);
    for (std::uint32_t i = 0; i < work.depth; ++i)
      buffers[i] = {work.memory.data() + i * work.block_bytes, work.block_bytes};
    fixed_buffers_ = io_uring_register_buffers(&ring_, buffers.data(), work.depth) == 0;
    fixed_file_ = io_uring_register_files(&ring_, &work.fd, 1) == 0;
    how_ += fixed_buffers_ ? ", fixed buffers" : ", plain buffers";
    how_ += fixed_file_ ? ", fixed file" : ", plain file";
  }

  void prepare(const Work& work, std::uint32_t slot, const BlockChoice::Next& next) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null: the ring has an entry for each slot
    std::byte* buffer = work.memory.data() + slot * work.block_bytes;
    const auto bytes = static_cast<unsigned>(work.block_bytes);
    const std::uint64_t offset = next.block * work.block_bytes;
    const int file = fixed_file_ ? 0 : work.fd;
    const int index = static_cast<int>(slot);
    if (fixed_buffers_ && next.write) {
      io_uring_prep_write_fixed(sqe, file, buffer, bytes, offset, index);
    } else if (fixed_buffers_) {
      io_uring_prep_read_fixed(sqe, file, buffer, bytes, offset, index);
    } else if (next.write) {
      io_uring_prep_write(sqe, file, buffer, bytes, offset);
    } else {
      io_uring_prep_read(sqe, file, buffer, bytes, offset);
    }
    if (fixed_file_) sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(sqe, slot);
  }

  io_uring* get() { return &ring_; }
  const std::string& how() const { return how_; }

 private:
  io_uring ring_ = {};
  bool open_ = false;
  bool fixed_buffers_ = false;
  bool fixed_file_ = false;
  std::string how_;
};

}  // namespace

Result<Moved> run_bare_uring(const Work& work) {
  Ring ring;
  SLUICE_RETURN_IF_ERROR(ring.open(work.depth));
  ring.register_all(work);

  BareLoop loop(work);
  Status failure;
  const auto prepare = [&](std::uint32_t slot) {
    if (loop.begin()) ring.prepare(work, slot, loop.next());
  };
  for (std::uint32_t slot = 0; slot < work.depth; ++slot) prepare(slot);
  while (loop.in_flight() > 0) {
    const int entered = io_uring_submit_and_wait(ring.get(), 1);
    if (entered < 0 && entered != -EINTR && entered != -EAGAIN && entered != -EBUSY)
      return status_from_errno(-entered, "io_uring_enter(2)");
    loop.look_at_the_clock();
    unsigned head = 0;
    unsigned count = 0;
    io_uring_cqe* cqe = nullptr;
    io_uring_for_each_cqe(ring.get(), head, cqe) {
      ++count;
      if (const Status status = loop.finish(cqe->res); !status.ok()) failure = status;
      prepare(static_cast<std::uint32_t>(io_uring_cqe_get_data64(cqe)));
    }
    io_uring_cq_advance(ring.get(), count);
  }
  if (!failure.ok()) return failure;
  return loop.moved(ring.how());
}

}  // namespace sluice::peers
