// What a request costs the library over a bare ring, where the drive takes no part: 4 KiB reads of a small file that is
// in the page cache.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "io/directory.hpp"
#include "io/file.hpp"
#include "io/open_backend.hpp"
#include "io/queue.hpp"
#include "memory/arena.hpp"
#include "peers/bare_uring.hpp"
#include "side_by_side.hpp"
#include "tools/nvme/test_pattern.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::uint64_t kFileBytes = 256 * kBlockBytes;

/// Sends requests to another descriptor of their file, which goes through the page cache. The queue itself would drop
/// the pages of a file that it knows to be buffered.
class Redirected final : public io::Backend {
 public:
  Redirected(std::unique_ptr<io::Backend> inner, int fd) : inner_(std::move(inner)), fd_(fd) {}
  std::string_view name() const override { return inner_->name(); }
  io::BackendLimits limits() const override { return inner_->limits(); }
  io::Request* submit(io::Request* first) override {
    for (io::Request* request = first; request != nullptr; request = request->next) request->fd = fd_;
    return inner_->submit(first);
  }
  io::Request* reap() override { return inner_->reap(); }
  void wait(std::int64_t deadline_ns, std::uint32_t events) override { inner_->wait(deadline_ns, events); }
  void wake() override { inner_->wake(); }

 private:
  std::unique_ptr<io::Backend> inner_;
  int fd_;
};

/// The file, its buffers, and the queue of the library's side.
class CachedFile {
 public:
  static Result<std::unique_ptr<CachedFile>> make(const std::string& directory_path, std::uint32_t depth) {
    SLUICE_ASSIGN_OR_RETURN(const io::Directory directory,
                            io::Directory::open(directory_path, io::Access::kReadWrite));
    const std::string name = fmt::format("sluice-bench-{}", getpid());
    SLUICE_ASSIGN_OR_RETURN(io::File file,
                            io::File::open(directory, name, {.creation = io::Creation::kExclusive}));
    SLUICE_RETURN_IF_ERROR(directory.remove(name));
    auto made = std::make_unique<CachedFile>(std::move(file));
    SLUICE_RETURN_IF_ERROR(made->fill());
    SLUICE_ASSIGN_OR_RETURN(
        made->arena_, memory::Arena::create({.bytes = depth * kBlockBytes, .purpose = "benchmark buffers"}));
    SLUICE_ASSIGN_OR_RETURN(io::SelectedBackend selected,
                            io::open_backend({.kind = io::BackendKind::kUring, .queue_depth = depth}));
    const std::array regions = {made->arena_.span()};
    const std::array files = {made->cached_.get()};
    // Where registration is refused the figures tell; the benchmark goes on.
    static_cast<void>(selected.backend->register_memory(regions).ok());
    static_cast<void>(selected.backend->register_files(files).ok());
    made->backend_ = std::make_unique<Redirected>(std::move(selected.backend), made->cached_.get());
    made->depth_ = depth;
    return made;
  }

  explicit CachedFile(io::File file) : file_(std::move(file)) {}

  peers::Work work(double seconds) const {
    return {.fd = cached_.get(),
            .file_bytes = kFileBytes,
            .block_bytes = kBlockBytes,
            .depth = depth_,
            .memory = arena_.span(),
            .seconds = seconds};
  }

  Result<peers::Moved> run_queue(double seconds) {
    io::Queue queue(*backend_, {.drives = {{.piece_bytes = kBlockBytes, .depth = depth_}}});
    Run run{queue, peers::BlockOrder(0, kFileBytes / kBlockBytes, peers::Pattern::kSequential)};
    std::vector<io::Transfer> transfers(depth_);
    const peers::CpuSeconds cpu_before = peers::process_cpu();
    const std::int64_t start_ns = io::steady_now_ns();
    const std::int64_t end_ns = start_ns + static_cast<std::int64_t>(seconds * 1e9);
    for (std::uint32_t i = 0; i < depth_; ++i) {
      io::Transfer& transfer = transfers[i];
      transfer.file = &file_;
      transfer.buffer = arena_.span().data() + i * kBlockBytes;
      transfer.bytes = kBlockBytes;
      transfer.owner = &run;
      transfer.on_done = on_done;
      run.submit(transfer);
    }
    while (queue.in_flight() > 0) {
      queue.wait();
      run.over = run.over || io::steady_now_ns() >= end_ns;
      queue.poll();
    }
    SLUICE_RETURN_IF_ERROR(run.failure);
    return peers::Moved{.bytes = queue.counters().bytes_read,
                        .seconds = static_cast<double>(io::steady_now_ns() - start_ns) * 1e-9,
                        .cpu = peers::process_cpu() - cpu_before,
                        .how = {}};
  }

 private:
  struct Run {
    io::Queue& queue;
    peers::BlockOrder order;
    bool over = false;
    Status failure = {};

    void submit(io::Transfer& transfer) {
      transfer.offset = order.next() * kBlockBytes;
      queue.submit(transfer);
    }
  };

  static void on_done(io::Transfer& transfer) {
    Run& run = *static_cast<Run*>(transfer.owner);
    if (!transfer.status.ok()) {
      run.failure = transfer.status;
      run.over = true;
    }
    if (!run.over) run.submit(transfer);
  }

  Status fill() {
    std::vector<std::byte> data(kFileBytes);
    tools::fill_with_noise(data, 0);
    SLUICE_RETURN_IF_ERROR(file_.write_exact(0, data));
    cached_ =
        io::Descriptor(::open(fmt::format("/proc/self/fd/{}", file_.fd()).c_str(), O_RDONLY | O_CLOEXEC));
    if (cached_.get() < 0) return status_from_errno(errno, "opening " + file_.path() + " once more");
    if (::pread(cached_.get(), data.data(), data.size(), 0) != static_cast<ssize_t>(data.size()))
      return Status(Code::kIoError, "reading " + file_.path() + " into the page cache");
    return {};
  }

  io::File file_;
  io::Descriptor cached_;
  memory::Arena arena_;
  std::unique_ptr<io::Backend> backend_;
  std::uint32_t depth_ = 0;
};

void overhead(benchmark::State& state, const Workplace& place, std::uint32_t depth) {
  const auto file = CachedFile::make(place.directory, depth);
  if (!file.ok()) return state.SkipWithError(file.status().to_string().c_str());
  run_side_by_side(state, kBlockBytes,
                   {{"queue", [&] { return (*file)->run_queue(place.seconds); }},
                    {"bare", [&] { return peers::run_bare_uring((*file)->work(place.seconds)); }}});
}

}  // namespace

void add_overhead_benchmarks(const Workplace& place) {
  for (const std::uint32_t depth : {1U, 8U, 32U}) {
    benchmark::RegisterBenchmark(fmt::format("overhead/cached_4KiB_read/depth_{}", depth).c_str(),
                                 [=](benchmark::State& state) { overhead(state, place, depth); })
        ->Iterations(5)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace sluice::bench
