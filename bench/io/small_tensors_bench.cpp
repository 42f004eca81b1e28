// Tensors of 64 KiB to 16 MiB out of slots side by side in one file, with depth across them, beside a file a tensor that
// is read one tensor at a time.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "side_by_side.hpp"
#include "tensor_files.hpp"
#include "tools/nvme/test_bed.hpp"
#include "workplace.hpp"

namespace sluice::bench {
namespace {

constexpr std::uint32_t kPieceBytes = 1 << 20;
constexpr std::uint32_t kDepth = 32;

void small_tensors(benchmark::State& state, const Workplace& place, std::uint64_t tensor_bytes) {
  const std::uint64_t most_bytes = std::min<std::uint64_t>(place.size_bytes, 256 << 20);
  const auto count = static_cast<std::size_t>(most_bytes / tensor_bytes);
  const std::uint32_t piece_bytes =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(tensor_bytes, kPieceBytes));
  io::DriveSettings settings{.piece_bytes = piece_bytes, .depth = kDepth};
  while (settings.depth > 1 && tools::blocks_in_flight(settings, tensor_bytes) > count) settings.depth /= 2;
  if (tools::blocks_in_flight(settings, tensor_bytes) > count)
    return state.SkipWithError("--size has no room for the tensors in flight");
  auto made =
      tools::TestBed::create({.directories = {place.directory},
                              .size_bytes = count * tensor_bytes,
                              .block_bytes = tensor_bytes,
                              .depth_max = settings.depth,
                              .memory_bytes = tools::blocks_in_flight(settings, tensor_bytes) * tensor_bytes,
                              .cpus = {}});
  if (!made.ok()) return state.SkipWithError(made.status().to_string().c_str());
  tools::TestBed& bed = **made;
  if (const Status filled = bed.fill(); !filled.ok()) return state.SkipWithError(filled.to_string().c_str());
  const auto files = TensorFiles::make(place.directory, tensor_bytes, count, bed.memory());
  if (!files.ok()) return state.SkipWithError(files.status().to_string().c_str());
  const auto slots = [&]() -> Result<peers::Moved> {
    SLUICE_ASSIGN_OR_RETURN(
        const tools::RunResult result,
        bed.run({.block_bytes = tensor_bytes, .drives = {settings}, .bytes_max = count * tensor_bytes}));
    return peers::Moved{
        .bytes = result.counts.bytes_read, .seconds = result.seconds, .cpu = result.cpu, .how = {}};
  };
  run_side_by_side(state, static_cast<double>(tensor_bytes),
                   {{"slots", slots},
                    {"files_pread", [&] { return files->read_by_pread(); }},
                    {"files_uring", [&] { return files->read_by_uring(kPieceBytes); }}});
}

}  // namespace

void add_small_tensor_benchmarks(const Workplace& place) {
  for (const std::uint64_t tensor_bytes : {64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}) {
    benchmark::RegisterBenchmark(fmt::format("small_tensors/{}KiB", tensor_bytes >> 10).c_str(),
                                 [=](benchmark::State& state) { small_tensors(state, place, tensor_bytes); })
        ->Iterations(5)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace sluice::bench
