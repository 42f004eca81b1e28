#include "io/uring_backend.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include "io/directory.hpp"
#include "io/request_list.hpp"

namespace sluice::io {
namespace {

// The kernel registers at most 1 GiB in one buffer. Source: io_uring_register(2), IORING_REGISTER_BUFFERS.
constexpr std::size_t kMaxRegisteredBytes = std::size_t{1} << 30;
// How long to rest when the kernel has no memory for a request and nothing says when it will.
constexpr int kNapMs = 1;

std::string_view remedy(int error) {
  switch (error) {
    case EPERM:
    case EACCES:
      return "allowed by sysctl kernel.io_uring_disabled or the container's seccomp profile";
    case ENOSYS:
      return "offered by Linux 5.11 or later where the container's seccomp profile lets io_uring calls "
             "through";
    case ENOMEM:
      return "needs a higher lock limit (ulimit -l), a higher memory limit or a smaller queue depth";
    case EMFILE:
    case ENFILE:
      return "needs a higher limit of open files (ulimit -n)";
    case EINVAL:
      return "needs Linux 5.11 or later, or a smaller queue depth";
    default:
      return "not usable on this machine";
  }
}

Status refusal(int error) {
  const bool exhausted = error == ENOMEM || error == EMFILE || error == ENFILE;
  const char* symbol = strerrorname_np(error);
  return Status(exhausted ? Code::kResourceExhausted : Code::kUnavailable,
                fmt::format("io_uring: {} ({}): {}", strerrordesc_np(error), symbol == nullptr ? "?" : symbol,
                            remedy(error)),
                error);
}

/// Where a registered buffer lies: [begin, end) is the kernel's buffer number `index`.
struct Region {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  int index = 0;
};

class UringBackend final : public Backend {
 public:
  explicit UringBackend(std::uint32_t depth) : depth_(depth) {}

  ~UringBackend() override {
    if (!ring_open_) return;
    if (wake_armed_) wake();
    while (in_kernel_ > 0) {
      if (io_uring_cqe* cqe = nullptr; io_uring_wait_cqe(&ring_, &cqe) != 0) nap(kNapMs);
      collect();
    }
    io_uring_queue_exit(&ring_);
  }

  Status start() {
    event_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
    if (event_.get() < 0) return refusal(errno);
    // One entry more than the depth: the read that wake() ends. COOP_TASKRUN saves an interrupt for each
    // completion, TASKRUN_FLAG lets reap() see that there is something to fetch. SINGLE_ISSUER would bind the
    // ring to this thread.
    int error =
        io_uring_queue_init(depth_ + 1, &ring_, IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (error == -EINVAL) error = io_uring_queue_init(depth_ + 1, &ring_, 0);
    if (error != 0) return refusal(-error);
    ring_open_ = true;
    if ((ring_.features & IORING_FEAT_EXT_ARG) == 0) return refusal(ENOSYS);
    io_uring_ring_dontfork(&ring_);
    return probe();
  }

  std::string_view name() const override { return "uring"; }
  BackendLimits limits() const override { return {.depth = depth_}; }

  Request* submit(Request* first) override {
    while (first != nullptr && held_ < depth_) {
      Request* next = first->next;
      ++held_;
      prepare(*first);
      first = next;
    }
    enter();
    return first;
  }

  Request* reap() override {
    enter();
    collect();
    held_ -= done_.count;
    return done_.take();
  }

  void wait(std::int64_t deadline_ns) override {
    collect();
    if (done_.empty() && !woken_) sleep(deadline_ns);
    woken_ = false;
  }

  void wake() override {
    // seq_cst: what the waking thread posted before is seen by the loop that takes the flag back in
    // collect().
    if (signaled_.exchange(true)) return;
    const std::uint64_t one = 1;
    while (::write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  Status register_memory(std::span<const std::span<std::byte>> regions) override {
    std::vector<iovec> buffers;
    std::vector<Region> registered;
    for (const std::span<std::byte> region : regions) {
      for (std::size_t at = 0; at < region.size(); at += kMaxRegisteredBytes) {
        const auto part = region.subspan(at, std::min(kMaxRegisteredBytes, region.size() - at));
        const auto begin = reinterpret_cast<std::uintptr_t>(part.data());
        registered.push_back({begin, begin + part.size(), static_cast<int>(buffers.size())});
        buffers.push_back({part.data(), part.size()});
      }
    }
    const int error =
        io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    if (error != 0) return refusal(-error).with_context("registering memory");
    std::sort(registered.begin(), registered.end(),
              [](const Region& a, const Region& b) { return a.begin < b.begin; });
    regions_ = std::move(registered);
    return Status();
  }

 private:
  /// A ring may open and still refuse to work; a write and a read of the wake descriptor show it.
  Status probe() {
    for (const Op op : {Op::kWrite, Op::kRead}) {
      wake_value_ = 1;
      Request request{.op = op, .fd = event_.get(), .bytes = sizeof wake_value_, .buffer = &wake_value_};
      submit(&request);
      while (reap() == nullptr) wait_for_completion(kNoDeadline);
      if (request.result != sizeof wake_value_)
        return refusal(request.result < 0 ? static_cast<int>(-request.result) : EIO);
    }
    return Status();
  }

  /// The kernel's buffer that holds the whole request, -1 when none does.
  int registered_index(const Request& request) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(request.buffer);
    auto after = std::upper_bound(regions_.begin(), regions_.end(), begin,
                                  [](std::uintptr_t at, const Region& region) { return at < region.begin; });
    if (after == regions_.begin()) return -1;
    const Region& region = *std::prev(after);
    return begin + request.bytes <= region.end ? region.index : -1;
  }

  void prepare(Request& request) {
    if (dead_error_ != 0) {
      request.result = -dead_error_;
      done_.push(request);
      return;
    }
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null: the ring has an entry for each request held
    const bool moves = request.op == Op::kRead || request.op == Op::kWrite;
    const int index = moves ? registered_index(request) : -1;
    if (request.op == Op::kFlush) {
      io_uring_prep_fsync(sqe, request.fd, IORING_FSYNC_DATASYNC);
    } else if (request.op == Op::kDropCache) {
      io_uring_prep_fadvise(sqe, request.fd, request.offset, static_cast<off_t>(request.bytes),
                            POSIX_FADV_DONTNEED);
    } else if (request.op == Op::kRead && index >= 0) {
      io_uring_prep_read_fixed(sqe, request.fd, request.buffer, request.bytes, request.offset, index);
    } else if (request.op == Op::kRead) {
      io_uring_prep_read(sqe, request.fd, request.buffer, request.bytes, request.offset);
    } else if (index >= 0) {
      io_uring_prep_write_fixed(sqe, request.fd, request.buffer, request.bytes, request.offset, index);
    } else {
      io_uring_prep_write(sqe, request.fd, request.buffer, request.bytes, request.offset);
    }
    io_uring_sqe_set_data(sqe, &request);
    unsent_.push(request);
  }

  /// Hands what is prepared to the kernel. What the kernel has no memory for stays prepared.
  void enter() {
    if (unsent_.empty()) return;
    settle(io_uring_submit(&ring_));
  }

  /// Does the books after an enter that returned `result`. Returns: whether the kernel took part.
  bool settle(int result) {
    for (std::uint32_t left = io_uring_sq_ready(&ring_); unsent_.count > left; ++in_kernel_) unsent_.pop();
    if (result >= 0 || result == -EINTR || result == -ETIME) return true;
    if (result == -EAGAIN || result == -EBUSY) return false;
    dead_error_ = -result;  // the kernel refuses the ring as such
    while (!unsent_.empty()) {
      Request& request = unsent_.pop();
      if (&request == &wake_request_) {
        wake_armed_ = false;
        continue;
      }
      request.result = result;
      done_.push(request);
    }
    return false;
  }

  /// Moves what the kernel has finished to done_.
  void collect() {
    for (io_uring_cqe* cqe = nullptr; in_kernel_ > 0 && io_uring_peek_cqe(&ring_, &cqe) == 0;) {
      Request& request = *static_cast<Request*>(io_uring_cqe_get_data(cqe));
      request.result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      --in_kernel_;
      if (&request == &wake_request_) {
        wake_armed_ = false;
        take_wake();
      } else {
        done_.push(request);
      }
    }
  }

  void take_wake() {
    woken_ = true;
    signaled_.exchange(false);
  }

  void sleep(std::int64_t deadline_ns) {
    if (!wake_armed_ && dead_error_ == 0) {
      // Armed here, by the thread that waits: what a thread has in the kernel ends with it.
      wake_request_ = {
          .op = Op::kRead, .fd = event_.get(), .bytes = sizeof wake_value_, .buffer = &wake_value_};
      prepare(wake_request_);
      wake_armed_ = true;
    }
    wait_for_completion(deadline_ns);
    collect();
  }

  void wait_for_completion(std::int64_t deadline_ns) {
    const std::int64_t left_ns =
        deadline_ns == kNoDeadline ? 0 : std::max<std::int64_t>(deadline_ns - steady_now_ns(), 0);
    bool entered = false;
    if (dead_error_ == 0) {
      __kernel_timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
      io_uring_cqe* cqe = nullptr;
      entered = settle(io_uring_submit_and_wait_timeout(
          &ring_, &cqe, 1, deadline_ns == kNoDeadline ? nullptr : &left, nullptr));
    }
    if (!entered) nap(deadline_ns == kNoDeadline || left_ns > kNapMs * 1'000'000 ? kNapMs : 0);
  }

  /// Sleeps a little without the ring.
  void nap(int timeout_ms) {
    pollfd watched[] = {{event_.get(), POLLIN, 0}, {ring_.ring_fd, POLLIN, 0}};
    const bool own_wake = !wake_armed_;  // an armed read takes the wake itself
    if (::poll(watched + (own_wake ? 0 : 1), own_wake ? 2 : 1, timeout_ms) <= 0) return;
    if (own_wake && (watched[0].revents & POLLIN) != 0 &&
        ::read(event_.get(), &wake_value_, sizeof wake_value_) > 0)
      take_wake();
  }

  const std::uint32_t depth_;
  Descriptor event_;
  io_uring ring_ = {};
  bool ring_open_ = false;
  std::vector<Region> regions_;  // by address

  RequestList unsent_;  // prepared, in the order of the ring's entries
  RequestList done_;
  std::uint32_t held_ = 0;       // taken and not reaped
  std::uint32_t in_kernel_ = 0;  // the wake read included
  int dead_error_ = 0;           // why the kernel takes no more requests

  std::atomic<bool> signaled_ = false;  // a wake is on its way through the descriptor
  bool woken_ = false;                  // a wake has arrived for the next wait()
  bool wake_armed_ = false;
  Request wake_request_;
  std::uint64_t wake_value_ = 0;
};

}  // namespace

Result<std::unique_ptr<Backend>> open_uring_backend(const UringOptions& options) {
  auto backend = std::make_unique<UringBackend>(options.depth);
  SLUICE_RETURN_IF_ERROR(backend->start());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sluice::io
