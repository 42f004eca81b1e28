#include <sched.h>

#include <charconv>
#include <iostream>
#include <sstream>

#include <fmt/format.h>

#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/nvme/drive_compare.hpp"
#include "tools/nvme/drive_test.hpp"
#include "tools/nvme/drive_tune.hpp"
#include "tools/nvme/nvme_report.hpp"
#include "tools/nvme/tune_plot.hpp"
#include "tools/nvme/tune_report.hpp"
#include "tools/nvme/tune_table.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"

namespace sluice::tools {
namespace {

constexpr double kUsualSeconds = 5;
constexpr double kUsualRoundSeconds = 1;
constexpr double kUsualTrySeconds = 0.2;
const std::vector<std::uint64_t> kUsualBlocksBytes = {128 << 10, 512 << 10, 1 << 20,
                                                      2 << 20,   4 << 20,   8 << 20};
const std::vector<std::uint32_t> kUsualDepths = {2, 4, 8, 16, 32, 64};

struct NvmeOptions {
  DriveTestOptions test;
  std::vector<std::string> ops;
  std::string pattern = "sequential";
  std::string size = "1GiB";
  std::vector<std::string> blocks;
  std::vector<std::uint32_t> depths;
  std::string piece;
  std::string bytes;
  std::string cpus;
  std::string backend = "auto";
  double seconds = 0;
  bool seconds_given = false;
  bool tune = false;
  std::string plot;
  bool compare = false;
  std::uint32_t rounds = 5;
  bool no_register = false;
  bool verify = false;
};

// "0,2-3".
Result<std::vector<int>> parse_cpus(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int first = 0;
    const char* end = part.data() + part.size();
    auto parsed = std::from_chars(part.data(), end, first);
    int last = first;
    if (parsed.ec == std::errc{} && parsed.ptr != end && *parsed.ptr == '-')
      parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc{} || parsed.ptr != end || first < 0 || last < first || last >= CPU_SETSIZE)
      return refuse("--cpus", text, "numbers of CPUs and ranges of them, such as 0,2-3");
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

peers::Mix parse_mix(const std::string& word) {
  return word == "read" ? peers::Mix::kRead : word == "write" ? peers::Mix::kWrite : peers::Mix::kMixed;
}

Status read_words(NvmeOptions& options) {
  DriveTestOptions& test = options.test;
  test.pattern = options.pattern == "random" ? peers::Pattern::kRandom : peers::Pattern::kSequential;
  test.size_bytes = parse_size(options.size).value();
  if (!options.piece.empty()) {
    test.piece_bytes = parse_size(options.piece).value();
    if (test.piece_bytes == 0)
      return refuse("--piece", options.piece, "a multiple of 4 KiB, at most --block");
  }
  if (!options.bytes.empty()) test.bytes = parse_size(options.bytes).value();
  if (options.seconds_given) {
    test.seconds = options.seconds;
  } else if (options.bytes.empty()) {
    test.seconds = options.compare ? kUsualRoundSeconds : options.tune ? kUsualTrySeconds : kUsualSeconds;
  }
  SLUICE_ASSIGN_OR_RETURN(test.cpus, parse_cpus(options.cpus));
  test.backend = io::parse_backend(options.backend).value();
  test.registration = options.no_register ? Registration::kNo : Registration::kYes;
  test.verify = options.verify ? Verify::kYes : Verify::kNo;
  return {};
}

// The one of a list that an ordinary test takes.
template <class T>
Result<T> single(std::string_view option, const std::vector<T>& given, T usual) {
  if (given.empty()) return usual;
  if (given.size() == 1) return given.front();
  return refuse(option, fmt::format("{} values", given.size()), "one; several with --compare or --tune");
}

Status read_single(NvmeOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string op, single<std::string>("--op", options.ops, "read"));
  SLUICE_ASSIGN_OR_RETURN(const std::string block, single<std::string>("--block", options.blocks, "1MiB"));
  SLUICE_ASSIGN_OR_RETURN(options.test.depth, single<std::uint32_t>("--depth", options.depths, 16));
  options.test.mix = parse_mix(op);
  options.test.block_bytes = parse_size(block).value();
  return {};
}

std::vector<std::uint64_t> blocks_bytes(const NvmeOptions& options) {
  std::vector<std::uint64_t> all;
  for (const std::string& block : options.blocks) all.push_back(parse_size(block).value());
  return all;
}

void say(std::string_view what) { std::cerr << what << '\n'; }

Result<nlohmann::ordered_json> run_compare(const NvmeOptions& options) {
  CompareOptions compare{.test = options.test,
                         .mixes = {},
                         .blocks_bytes = blocks_bytes(options),
                         .depths = options.depths,
                         .rounds = options.rounds};
  for (const std::string& op : options.ops) compare.mixes.push_back(parse_mix(op));
  if (compare.mixes.empty()) compare.mixes = {peers::Mix::kRead};
  if (compare.blocks_bytes.empty()) compare.blocks_bytes = {1 << 20};
  if (compare.depths.empty()) compare.depths = {16};
  SLUICE_ASSIGN_OR_RETURN(const CompareReport report, compare_drives(compare, say));
  std::cerr << compare_text(report);
  return compare_json(compare, report);
}

// Tries settings, keeps the best with each drive, and draws what was measured.
Result<std::vector<DriveTuning>> run_tune(NvmeOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(const std::string op, single<std::string>("--op", options.ops, "mixed"));
  if (options.test.verify == Verify::kYes) return refuse("--verify", "given", "without --tune");
  if (options.test.piece_bytes != 0)
    return refuse("--piece", options.piece, "without --tune, which tries several");
  if (options.test.batch)
    return refuse("--batch", std::to_string(*options.test.batch),
                  "without --tune, which takes one as engines do");
  options.test.mix = parse_mix(op);
  TuneOptions tune{.test = options.test, .blocks_bytes = blocks_bytes(options), .depths = options.depths};
  if (tune.blocks_bytes.empty()) tune.blocks_bytes = kUsualBlocksBytes;
  if (tune.depths.empty()) tune.depths = kUsualDepths;
  LiveTuneTable table;
  const auto tried = [&](const std::string& directory, const std::vector<TunePoint>& points) {
    table.show(directory, points);
  };
  SLUICE_ASSIGN_OR_RETURN(std::vector<DriveTuning> drives, tune_drives(tune, say, tried));
  SLUICE_RETURN_IF_ERROR(keep_settings(drives));
  std::cerr << tune_text(drives);
  if (!options.plot.empty()) {
    SLUICE_RETURN_IF_ERROR(
        write_plot(options.plot, tune_svg(drives, op + ", throughput over block and depth")));
    say("drawn in " + options.plot);
  }
  return drives;
}

Result<nlohmann::ordered_json> run(NvmeOptions& options) {
  SLUICE_RETURN_IF_ERROR(read_words(options));
  if (options.tune && options.compare) return refuse("--tune", "given", "without --compare");
  if (!options.plot.empty() && !options.tune) return refuse("--plot", options.plot, "with --tune");
  if (!options.plot.empty()) SLUICE_RETURN_IF_ERROR(check_plot(options.plot));
  const Interrupt interrupt;
  if (options.compare) return run_compare(options);
  std::vector<DriveTuning> tuned;
  if (options.tune) {
    SLUICE_ASSIGN_OR_RETURN(tuned, run_tune(options));
    if (!options.seconds_given && options.bytes.empty()) options.test.seconds = kUsualSeconds;
    use_tuning(tuned, options.test);
  } else {
    SLUICE_RETURN_IF_ERROR(read_single(options));
  }
  SLUICE_ASSIGN_OR_RETURN(const DriveTestReport report, test_drives(options.test, say));
  std::cerr << report_text(options.test, report);
  nlohmann::ordered_json json = report_json(options.test, report);
  json["tuned"] = tune_json(tuned);
  return json;
}

}  // namespace

void add_nvme_command(CLI::App& app, Command& chosen) {
  auto options = std::make_shared<NvmeOptions>();
  DriveTestOptions& test = options->test;
  CLI::App* command =
      app.add_subcommand("nvme", "Measure drives with the library's own I/O on data it wrote");
  add_directories(*command, test.directories)->required();
  command
      ->add_option("--op", options->ops,
                   "What to measure; several, with commas, for --compare; default: read, for --tune mixed")
      ->delimiter(',')
      ->check(CLI::IsMember({"read", "write", "mixed"}));
  command->add_option("--pattern", options->pattern, "The order of the blocks")
      ->check(CLI::IsMember({"sequential", "random"}))
      ->capture_default_str();
  add_size(*command, "--size", options->size, "Bytes of all files together")->capture_default_str();
  command
      ->add_option("--block", options->blocks,
                   "Bytes of one transfer; several, with commas, for --compare and --tune; default: 1MiB")
      ->delimiter(',')
      ->check(CLI::Validator(check_size, "SIZE"));
  add_size(*command, "--piece", options->piece,
           "Bytes of one request; a block is cut into them; default: the block");
  command
      ->add_option("--depth", options->depths,
                   "Requests in flight on each drive, 1 to 4096; several, with commas, for --compare and "
                   "--tune; default: 16")
      ->delimiter(',');
  command->add_option(
      "--batch", test.batch,
      "Completions a thread waits for at once, at most its part of the depth; default: one and up to an "
      "eighth of that part, at most 16, where 1.5 MiB stay in flight");
  command->add_option("--threads", test.threads, "Threads that submit, each with its part of the depth")
      ->capture_default_str();
  command->add_option("--cpus", options->cpus,
                      "CPUs they may run on, such as 0,2-3; default: the kernel's choice");
  CLI::Option* seconds =
      command->add_option("--seconds", options->seconds,
                          "How long to measure; default: 5, a turn of --compare 1, a try of --tune 0.2");
  add_size(*command, "--bytes", options->bytes, "How much to move; with --seconds, what comes first ends it");
  add_backend(*command, options->backend);
  command->add_flag("--no-register", options->no_register, "Leave buffers and files unregistered");
  command->add_flag(
      "--tune", options->tune,
      "Try blocks, depths and pieces on each drive, keep the best for engines to use, and measure it");
  command->add_option("--plot", options->plot, "Draw what --tune measured: an SVG file to write");
  command->add_flag(
      "--compare", options->compare,
      "Measure beside bare loops over the kernel's calls, and fio where there is one, on the same file");
  command
      ->add_option("--rounds", options->rounds,
                   "Rounds of --compare, in each of which all sides have their turn")
      ->capture_default_str();
  command->add_flag("--verify", options->verify, "Read everything back afterwards and compare every byte");
  command->callback([options, seconds, &chosen] {
    options->seconds_given = seconds->count() > 0;
    chosen = [options] { return run(*options); };
  });
}

}  // namespace sluice::tools
