#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "sluice/status.hpp"
#include "tools/nvme/drive_test.hpp"

namespace sluice::tools {

struct CompareOptions {
  DriveTestOptions test;  ///< of one directory and one thread; its mix, block and depth are not looked at
  std::vector<peers::Mix> mixes;
  std::vector<std::uint64_t> blocks_bytes;
  std::vector<std::uint32_t> depths;
  std::uint32_t rounds = 5;
};

/// Sluice's own I/O, a bare loop or an engine of fio.
struct Contender {
  std::string name;                   ///< "sluice", "aio", "uring", "fio_libaio", "fio_io_uring"
  std::string how;                    ///< what it had of what the kernel may offer
  std::vector<double> gib_per_s;      ///< one a round
  std::vector<double> cpu_s_per_gib;  ///< one a round
  double median_gib_per_s = 0;
  double median_cpu_s_per_gib = 0;
};

/// All contenders on the same blocks of the same file, by turns.
/// Invariant: contenders[0] is Sluice, and there is at least one other.
struct Comparison {
  peers::Mix mix = peers::Mix::kRead;
  std::uint64_t block_bytes = 0;
  std::uint32_t depth = 0;
  std::vector<Contender> contenders;
  std::size_t best = 1;        ///< the fastest of the others, by its median
  double ratio = 0;            ///< Sluice's median throughput over its
  double ratio_min = 0;        ///< of one round
  double ratio_max = 0;        ///< of one round
  double cpu_ratio = 0;        ///< Sluice's median CPU seconds a GiB over its
  double cpu_ratio_least = 0;  ///< over those of the other that needs least
};

struct CompareReport {
  std::vector<Comparison> comparisons;
  TestBedUse use;
  std::vector<std::string> notes;  ///< who took no part, and why
};

/// Who takes its turn after whom in a round, since what one leaves in the drive the next one meets: in as many rounds as
/// there are contenders each has each place once, and in twice as many it comes as often after any other.
/// Requires: count > 0. Source: E. J. Williams, Australian Journal of Scientific Research A 2 (1949), 149.
std::vector<std::size_t> turn_order(std::size_t round, std::size_t count);

/// Takes the medians and ratios. Requires: as many rounds of each contender, at least one.
void settle(Comparison& comparison);

/// Measures every mix, block and depth: in each round every contender once, by turn_order().
/// Errors: kInvalidArgument naming the option; otherwise as test_drives(). A contender other than Sluice that fails is
/// left out and noted, unless none is left.
Result<CompareReport> compare_drives(const CompareOptions& options, const Progress& progress);

/// For people: a line a comparison, and for each mix what all reach at their best settings.
std::string compare_text(const CompareReport& report);

nlohmann::ordered_json compare_json(const CompareOptions& options, const CompareReport& report);

}  // namespace sluice::tools
