#include <liburing.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "tensor_files.hpp"

namespace sluice::bench {
namespace {

constexpr unsigned kDepth = 32;

Status read_one(io_uring& ring, int fd, std::span<std::byte> target, std::uint64_t piece_bytes) {
  std::uint64_t begun = 0;
  unsigned in_flight = 0;
  Status failure;
  while (begun < target.size() || in_flight > 0) {
    for (; begun < target.size() && in_flight < kDepth; ++in_flight) {
      const std::uint64_t bytes = std::min(piece_bytes, target.size() - begun);
      io_uring_sqe* sqe = io_uring_get_sqe(&ring);
      io_uring_prep_read(sqe, fd, target.data() + begun, static_cast<unsigned>(bytes), begun);
      io_uring_sqe_set_data64(sqe, bytes);
      begun += bytes;
    }
    if (const int entered = io_uring_submit_and_wait(&ring, 1); entered < 0 && entered != -EINTR)
      return status_from_errno(-entered, "io_uring_enter(2)");
    for (io_uring_cqe* cqe = nullptr; in_flight > 0 && io_uring_peek_cqe(&ring, &cqe) == 0; --in_flight) {
      if (cqe->res != static_cast<int>(io_uring_cqe_get_data64(cqe)))
        failure = status_from_errno(cqe->res < 0 ? -cqe->res : EIO, "reading a tensor");
      io_uring_cqe_seen(&ring, cqe);
    }
  }
  return failure;
}

}  // namespace

Result<peers::Moved> TensorFiles::read_by_uring(std::uint64_t piece_bytes) const {
  io_uring ring = {};
  if (const int error = io_uring_queue_init(kDepth, &ring, 0); error != 0)
    return status_from_errno(-error, "io_uring_setup(2)");
  const peers::CpuSeconds cpu_before = peers::process_cpu();
  const std::int64_t start_ns = peers::now_ns();
  Status status;
  for (std::size_t i = 0; i < count_ && status.ok(); ++i) {
    const io::Descriptor fd = open(i);
    status = read_one(ring, fd.get(), memory_.first(tensor_bytes_), piece_bytes);
  }
  io_uring_queue_exit(&ring);
  SLUICE_RETURN_IF_ERROR(status);
  return peers::Moved{.bytes = count_ * tensor_bytes_,
                      .seconds = static_cast<double>(peers::now_ns() - start_ns) * 1e-9,
                      .cpu = peers::process_cpu() - cpu_before,
                      .how = {}};
}

}  // namespace sluice::bench
