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
#include <string>
#include <utility>
#include <vector>

#include "io/directory.hpp"
#include "io/registered_memory.hpp"
#include "io/request_list.hpp"
#include "io/uring_setup.hpp"

namespace sluice::io {
namespace {

// Every flag that is hoped for. A liburing before 2.6 indexes the submission array, which the kernel does not
// make with NO_SQARRAY.
#if IO_URING_VERSION_MAJOR * 100 + IO_URING_VERSION_MINOR >= 206
constexpr unsigned kHopedFor = kRingSingleIssuer | kRingDeferTaskrun | kRingCoopTaskrun | kRingTaskrunFlag |
                               kRingNoSqArray | kRingCqSize;
static_assert(kRingNoSqArray == IORING_SETUP_NO_SQARRAY);
#else
constexpr unsigned kHopedFor =
    kRingSingleIssuer | kRingDeferTaskrun | kRingCoopTaskrun | kRingTaskrunFlag | kRingCqSize;
#endif
static_assert(kRingSingleIssuer == IORING_SETUP_SINGLE_ISSUER);
static_assert(kRingDeferTaskrun == IORING_SETUP_DEFER_TASKRUN);
static_assert(kRingCoopTaskrun == IORING_SETUP_COOP_TASKRUN);
static_assert(kRingTaskrunFlag == IORING_SETUP_TASKRUN_FLAG);
static_assert(kRingCqSize == IORING_SETUP_CQSIZE);

// How long to rest when the kernel has no memory for a request and nothing says when it will.
constexpr int kNapMs = 1;
// How often memory is registered anew while another ring's pages still count.
constexpr int kUnpinTries = 100;

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

/// Returns: a number that no other thread of this process has or had.
std::uint64_t this_thread() {
  static std::atomic<std::uint64_t> next = 1;
  thread_local const std::uint64_t number = next.fetch_add(1);
  return number;
}

class UringBackend final : public Backend {
 public:
  explicit UringBackend(const UringOptions& options)
      : options_(options), hoped_for_(kHopedFor & options.features) {}

  ~UringBackend() override {
    while (in_kernel_ > 0) {
      io_uring_cqe* cqe = nullptr;
      if (!owned() || io_uring_wait_cqe(&ring_, &cqe) != 0) nap(kNapMs);
      collect();
    }
    close_ring();
  }

  Status start() {
    event_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (event_.get() < 0) return refusal(errno);
    return open_here();
  }

  std::string_view name() const override { return "uring"; }
  BackendLimits limits() const override { return {.depth = options_.depth}; }

  Request* submit(Request* first) override {
    const int error = owned() ? dead_error_ : EPERM;
    while (first != nullptr && held_ < options_.depth) {
      Request& request = *first;
      first = first->next;
      ++held_;
      if (error == 0) {
        prepare(request);
      } else {
        request.result = -error;
        done_.push(request);
      }
    }
    return first;
  }

  Request* reap() override {
    fetch();
    collect();
    held_ -= done_.count;
    return done_.take();
  }

  void wait(std::int64_t deadline_ns, std::uint32_t events) override {
    const std::uint32_t wanted = awaited(events, held_);
    const std::uint32_t posted = ring_open_ ? io_uring_cq_ready(&ring_) : 0;
    if (woken_ || done_.count + posted >= wanted) {
      fetch();
    } else {
      sleep(deadline_ns, wanted - done_.count);
    }
    collect();
    woken_ = false;
  }

  void wake() override {
    // seq_cst: what the waking thread posted before is seen by the loop that takes the flag back.
    if (signaled_.exchange(true)) return;
    const std::uint64_t one = 1;
    while (::write(event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  Status adopt() override {
    if (owned()) return check_usable();
    close_ring();
    if (Status opened = open_here(); !opened.ok()) {
      dead_error_ = static_cast<int>(opened.native());
      return opened;
    }
    // What is refused now stays noted; requests go on without it. The old ring's pages count against the lock
    // limit until the kernel has let go of them, a moment after its end.
    for (int tries = 0; !regions_.empty() && tries < kUnpinTries; ++tries) {
      if (register_regions().native() != ENOMEM) break;
      ::poll(nullptr, 0, kNapMs);
    }
    if (!fds_.empty()) (void)register_descriptors();
    return {};
  }

  Status register_memory(std::span<const std::span<std::byte>> regions) override {
    SLUICE_RETURN_IF_ERROR(check_usable());
    regions_.assign(regions.begin(), regions.end());
    return register_regions();
  }

  Status register_files(std::span<const int> fds) override {
    SLUICE_RETURN_IF_ERROR(check_usable());
    fds_.assign(fds.begin(), fds.end());
    return register_descriptors();
  }

  void unregister() override {
    regions_.clear();
    fds_.clear();
    unregister_all();
  }

  BackendUse in_use() const override {
    BackendUse use;
    if (!ring_open_) return use;
    use.ring = describe_ring(ring_.flags);
    use.registered_memory = !memory_.empty();
    use.registered_files = !file_numbers_.empty();
    for (const std::string& note : {describe_missing(hoped_for_, ring_.flags), memory_note_, files_note_})
      if (!note.empty()) use.notes.push_back(note);
    return use;
  }

 private:
  bool owned() const { return owner_ == this_thread(); }

  Status check_usable() const {
    if (!owned())
      return Status(Code::kFailedPrecondition, "io_uring: another thread's ring, to be adopted first");
    return dead_error_ == 0 ? Status() : refusal(dead_error_);
  }

  /// A ring of the calling thread's, which works.
  Status open_here() {
    owner_ = this_thread();
    dead_error_ = 0;
    wake_armed_ = false;
    // One entry more than the depth: the poll that wake() ends. As many completions as entries, so that a small
    // memory limit holds more rings; there are never more than requests held.
    const OpenedRing opened = open_ring(hoped_for_, [this](unsigned flags) {
      io_uring_params params = {};
      params.flags = flags;
      params.cq_entries = options_.depth + 1;
      return io_uring_queue_init_params(options_.depth + 1, &ring_, &params);
    });
    if (opened.error != 0) return refusal(-opened.error);
    ring_open_ = true;
    io_uring_ring_dontfork(&ring_);
    Status status = (ring_.features & IORING_FEAT_EXT_ARG) == 0 ? refusal(ENOSYS) : probe();
    if (!status.ok()) close_ring();
    return status;
  }

  /// Requires: nothing is in the kernel but the poll of the wake descriptor, which moves nothing.
  void close_ring() {
    if (!ring_open_) return;
    unregister_all();
    io_uring_queue_exit(&ring_);
    ring_open_ = false;
  }

  /// A ring may open and still refuse to work; a write and a read of a descriptor show it.
  Status probe() {
    const Descriptor event(::eventfd(0, EFD_CLOEXEC));
    if (event.get() < 0) return refusal(errno);
    std::uint64_t value = 1;
    for (const Op op : {Op::kWrite, Op::kRead}) {
      Request request{.op = op, .fd = event.get(), .bytes = sizeof value, .buffer = &value};
      submit(&request);
      while (reap() == nullptr) wait_for_completions(kNoDeadline, 1);
      if (request.result != sizeof value)
        return refusal(request.result < 0 ? static_cast<int>(-request.result) : EIO);
    }
    return Status();
  }

  Status register_regions() {
    RegisteredMemory memory(regions_, options_.registered_piece_bytes);
    std::vector<iovec> buffers;
    for (const std::span<std::byte> piece : memory.pieces()) buffers.push_back({piece.data(), piece.size()});
    const int error =
        io_uring_register_buffers(&ring_, buffers.data(), static_cast<unsigned>(buffers.size()));
    return note(error, "memory", memory_note_, [&] { memory_ = std::move(memory); });
  }

  Status register_descriptors() {
    const int error = io_uring_register_files(&ring_, fds_.data(), static_cast<unsigned>(fds_.size()));
    return note(error, "files", files_note_, [&] {
      file_numbers_.assign(static_cast<std::size_t>(*std::ranges::max_element(fds_)) + 1, -1);
      for (std::size_t number = 0; number < fds_.size(); ++number)
        file_numbers_[static_cast<std::size_t>(fds_[number])] = static_cast<int>(number);
    });
  }

  template <class Use>
  Status note(int error, std::string_view what, std::string& text, Use use) {
    text.clear();
    if (error == 0) {
      use();
      return {};
    }
    Status refused = refusal(-error).with_context(fmt::format("registering {}", what));
    text = refused.message() + "; not registered";
    return refused;
  }

  void unregister_all() {
    // The kernel takes this from the ring's own thread alone; else the ring's end lets go of them.
    if (owned() && !memory_.empty()) io_uring_unregister_buffers(&ring_);
    if (owned() && !file_numbers_.empty()) io_uring_unregister_files(&ring_);
    memory_ = {};
    file_numbers_.clear();
  }

  void prepare(Request& request) {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);  // never null: the ring has an entry for each request held
    const bool moves = request.op == Op::kRead || request.op == Op::kWrite;
    const int piece = moves ? memory_.find(request.buffer, request.bytes) : -1;
    if (&request == &wake_request_) {
      io_uring_prep_poll_add(sqe, request.fd, POLLIN);
    } else if (request.op == Op::kFlush) {
      io_uring_prep_fsync(sqe, request.fd, IORING_FSYNC_DATASYNC);
    } else if (request.op == Op::kDropCache) {
      // Never done while submitting: the kernel gives DONTNEED, which may wait, to a worker.
      // Source: io_uring/advise.c of Linux 5.6 and later.
      io_uring_prep_fadvise(sqe, request.fd, request.offset, request.bytes, POSIX_FADV_DONTNEED);
    } else if (request.op == Op::kRead && piece >= 0) {
      io_uring_prep_read_fixed(sqe, request.fd, request.buffer, request.bytes, request.offset, piece);
    } else if (request.op == Op::kRead) {
      io_uring_prep_read(sqe, request.fd, request.buffer, request.bytes, request.offset);
    } else if (piece >= 0) {
      io_uring_prep_write_fixed(sqe, request.fd, request.buffer, request.bytes, request.offset, piece);
    } else {
      io_uring_prep_write(sqe, request.fd, request.buffer, request.bytes, request.offset);
    }
    if (const auto fd = static_cast<std::size_t>(request.fd);
        fd < file_numbers_.size() && file_numbers_[fd] >= 0) {
      sqe->fd = file_numbers_[fd];
      io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    }
    io_uring_sqe_set_data(sqe, &request);
    unsent_.push(request);
  }

  /// Hands what is prepared to the kernel, or lets it post what has finished; nothing when there is neither, or
  /// something is posted already: one call of the kernel a round of wait() and reap().
  void fetch() {
    if (!owned()) return;
    if (dead_error_ != 0) {
      if (in_kernel_ > 0) io_uring_get_events(&ring_);  // what it took before is still to come
      return;
    }
    if (!unsent_.empty()) {
      settle(io_uring_submit_and_get_events(&ring_));
      return;
    }
    // Relaxed: a flag that is seen late is seen by the next call, and wait() asks the kernel.
    const unsigned flags = __atomic_load_n(ring_.sq.kflags, __ATOMIC_RELAXED);
    const bool pending = (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) != 0;
    if (pending && done_.empty() && io_uring_cq_ready(&ring_) == 0) io_uring_get_events(&ring_);
  }

  /// Does the books after an enter that returned `result`. What the kernel has no memory for stays prepared.
  /// Returns: whether the kernel took part.
  bool settle(int result) {
    for (std::uint32_t left = io_uring_sq_ready(&ring_); unsent_.count > left;)
      if (&unsent_.pop() != &wake_request_) ++in_kernel_;
    if (result >= 0 || result == -EINTR || result == -ETIME) return true;
    if (result == -EAGAIN || result == -EBUSY || result == -ENOMEM) return false;
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

  /// Moves what the kernel has posted to done_.
  void collect() {
    if (!ring_open_) return;
    unsigned count = 0;
    unsigned at;
    io_uring_cqe* cqe;
    io_uring_for_each_cqe(&ring_, at, cqe) {
      ++count;
      Request& request = *static_cast<Request*>(io_uring_cqe_get_data(cqe));
      if (&request == &wake_request_) {
        wake_armed_ = false;
        take_wake();
        continue;
      }
      request.result = cqe->res;
      --in_kernel_;
      done_.push(request);
    }
    io_uring_cq_advance(&ring_, count);
  }

  void take_wake() {
    std::uint64_t wakes;
    while (::read(event_.get(), &wakes, sizeof wakes) < 0 && errno == EINTR) {
    }
    // After the read: a waker that still sees the flag is one that this wake is for.
    signaled_.exchange(false);
    woken_ = true;
  }

  void sleep(std::int64_t deadline_ns, std::uint32_t completions) {
    if (owned() && dead_error_ == 0 && !wake_armed_) {
      // Armed by the thread that waits: what a thread has in the kernel ends with it. A poll takes nothing
      // from the descriptor, so one that a ring given up still has cannot swallow a wake.
      wake_request_ = {.fd = event_.get()};
      prepare(wake_request_);
      wake_armed_ = true;
    }
    wait_for_completions(deadline_ns, completions);
  }

  /// Until as many are posted, those of before included.
  void wait_for_completions(std::int64_t deadline_ns, std::uint32_t count) {
    const std::int64_t left_ns =
        deadline_ns == kNoDeadline ? 0 : std::max<std::int64_t>(deadline_ns - steady_now_ns(), 0);
    bool entered = false;
    if (owned() && dead_error_ == 0) {
      __kernel_timespec left{.tv_sec = left_ns / 1'000'000'000, .tv_nsec = left_ns % 1'000'000'000};
      io_uring_cqe* cqe = nullptr;
      entered = settle(io_uring_submit_and_wait_timeout(
          &ring_, &cqe, count, deadline_ns == kNoDeadline ? nullptr : &left, nullptr));
    }
    if (!entered) nap(deadline_ns == kNoDeadline || left_ns > kNapMs * 1'000'000 ? kNapMs : 0);
  }

  /// Sleeps a little without the ring.
  void nap(int timeout_ms) {
    pollfd watched{event_.get(), POLLIN, 0};
    if (::poll(&watched, 1, timeout_ms) > 0) take_wake();
  }

  const UringOptions options_;
  const unsigned hoped_for_;
  Descriptor event_;
  io_uring ring_ = {};
  bool ring_open_ = false;
  std::uint64_t owner_ = 0;  // the thread that may enter the kernel for it

  std::vector<std::span<std::byte>> regions_;  // to be registered
  std::vector<int> fds_;                       // likewise
  RegisteredMemory memory_;
  std::vector<int> file_numbers_;  // by descriptor; -1: not registered
  std::string memory_note_;
  std::string files_note_;

  RequestList unsent_;  // prepared, in the order of the ring's entries
  RequestList done_;
  std::uint32_t held_ = 0;       // taken and not reaped
  std::uint32_t in_kernel_ = 0;  // of them
  int dead_error_ = 0;           // why the kernel takes no more requests

  std::atomic<bool> signaled_ = false;  // a wake is on its way through the descriptor
  bool woken_ = false;                  // a wake has arrived for the next wait()
  bool wake_armed_ = false;
  Request wake_request_;  // stands for the poll of the wake descriptor
};

}  // namespace

Result<std::unique_ptr<Backend>> open_uring_backend(const UringOptions& options) {
  auto backend = std::make_unique<UringBackend>(options);
  SLUICE_RETURN_IF_ERROR(backend->start());
  return std::unique_ptr<Backend>(std::move(backend));
}

}  // namespace sluice::io
