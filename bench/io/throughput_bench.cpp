// The library's I/O beside bare loops, on the same blocks of the same file.
#include <memory>
#include <string>

#include <fmt/format.h>

#include "peers/bare_aio.hpp"
#include "peers/bare_uring.hpp"
#include "side_by_side.hpp"
#include "tools/nvme/nvme_report.hpp"
#include "tools/nvme/test_bed.hpp"
#include "tools/sizes.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

struct Point {
  peers::Mix mix;
  std::uint64_t block_bytes;
  std::uint32_t depth;
};

void throughput(benchmark::State& state, const Workplace& place, const Point& point) {
  const std::uint64_t halves = point.mix == peers::Mix::kMixed ? 2 : 1;
  if (point.block_bytes * point.depth * halves > place.size_bytes)
    return state.SkipWithError("--size has no room for the blocks in flight");
  auto made = tools::TestBed::create({.directories = {place.directory},
                                      .size_bytes = place.size_bytes,
                                      .block_bytes = point.block_bytes,
                                      .depth_max = point.depth,
                                      .memory_bytes = point.depth * point.block_bytes,
                                      .cpus = {}});
  if (!made.ok()) return state.SkipWithError(made.status().to_string().c_str());
  tools::TestBed& bed = **made;
  if (const Status filled = bed.fill(); !filled.ok()) return state.SkipWithError(filled.to_string().c_str());
  const peers::Work work{.fd = bed.file(0).fd(),
                         .file_bytes = bed.file_bytes(),
                         .block_bytes = point.block_bytes,
                         .depth = point.depth,
                         .mix = point.mix,
                         .memory = bed.memory(),
                         .seconds = place.seconds};
  const auto own = [&]() -> Result<peers::Moved> {
    const auto piece_bytes = static_cast<std::uint32_t>(point.block_bytes);
    SLUICE_ASSIGN_OR_RETURN(const tools::RunResult result,
                            bed.run({.mix = point.mix,
                                     .block_bytes = point.block_bytes,
                                     .drives = {{.piece_bytes = piece_bytes, .depth = point.depth}},
                                     .seconds = place.seconds}));
    return peers::Moved{.bytes = result.counts.bytes_read + result.counts.bytes_written,
                        .seconds = result.seconds,
                        .cpu = result.cpu,
                        .how = {}};
  };
  run_side_by_side(state, static_cast<double>(point.block_bytes),
                   {{"sluice", own},
                    {"aio", [&] { return peers::run_bare_aio(work); }},
                    {"uring", [&] { return peers::run_bare_uring(work); }}});
  state.SetLabel(fmt::format("{}, buffers on {}", bed.in_use().direct ? "O_DIRECT" : "buffered",
                             bed.in_use().buffer_pages));
}

}  // namespace

void add_throughput_benchmarks(const Workplace& place) {
  for (const peers::Mix mix : {peers::Mix::kRead, peers::Mix::kWrite, peers::Mix::kMixed}) {
    for (const std::uint64_t block_bytes : {256 << 10, 1 << 20, 8 << 20}) {
      for (const std::uint32_t depth : {8U, 32U}) {
        const std::string name =
            fmt::format("throughput/{}/{}KiB/depth_{}", tools::mix_name(mix), block_bytes >> 10, depth);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) {
                                       throughput(state, place, {mix, block_bytes, depth});
                                     })
            ->Iterations(5)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace sluice::bench
