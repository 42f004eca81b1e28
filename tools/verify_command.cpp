#include <iostream>
#include <memory>

#include <fmt/format.h>

#include "tools/byte_progress.hpp"
#include "tools/command.hpp"
#include "tools/interrupt.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"
#include "tools/verify_store.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyArguments {
  std::vector<std::string> directories;
  std::uint64_t commit = 0;  // 0: all
};

std::string bad_text(std::uint64_t commit, const FoundBad& found, VerifyScope scope) {
  const store::BadPlane& plane = found.plane;
  std::string copy = "no older commit has a good copy";
  if (found.good_in) copy = fmt::format("commit {} has a good older copy", *found.good_in);
  if (scope == VerifyScope::kChosenCommit) copy = "older commits were not read";
  return fmt::format("bad in commit {}: {} of '{}', elements {} to {}, rank {}, {}: {}; {}\n", commit,
                     store::plane_name(plane.plane), plane.parameter, plane.range.first,
                     plane.range.first + plane.range.count - 1, plane.rank, plane.drive,
                     plane.status.message(), copy);
}

Json to_json(const FoundBad& found) {
  const store::BadPlane& plane = found.plane;
  return {{"parameter", plane.parameter},
          {"first", plane.range.first},
          {"count", plane.range.count},
          {"plane", store::plane_name(plane.plane)},
          {"rank", plane.rank},
          {"chunk", plane.chunk},
          {"drive", plane.drive},
          {"error", plane.status.to_string()},
          {"good_in", found.good_in ? Json(*found.good_in) : Json(nullptr)}};
}

Result<Json> run(const VerifyArguments& arguments) {
  const auto scope = arguments.commit > 0 ? VerifyScope::kChosenCommit : VerifyScope::kAllCommits;
  std::optional<std::uint64_t> wanted;
  if (arguments.commit > 0) wanted = arguments.commit;
  const Interrupt interrupt;
  SLUICE_ASSIGN_OR_RETURN(const auto claimed, ClaimedStore::claim(arguments.directories, wanted));
  ByteProgress progress("read", 0);
  SLUICE_ASSIGN_OR_RETURN(
      const VerifyReport report,
      verify_store(*claimed, scope, [&](std::uint64_t bytes_read) { return progress.report(bytes_read); }));
  const double seconds = progress.seconds();
  progress.end();

  auto commits = Json::array();
  for (const VerifiedCommit& commit : report.commits) {
    auto bad = Json::array();
    for (const FoundBad& found : commit.bad) {
      std::cerr << bad_text(commit.number, found, scope);
      bad.push_back(to_json(found));
    }
    std::cerr << fmt::format(
        "commit {}: {}\n", commit.number,
        commit.bad.empty() ? "every plane is what was committed" : fmt::format("{} bad", commit.bad.size()));
    commits.push_back({{"number", commit.number}, {"bad", std::move(bad)}});
  }
  const double gib_per_s = static_cast<double>(report.bytes_read) / seconds / (1 << 30);
  std::cerr << fmt::format("read {} in {:.2f} s, {:.2f} GiB/s\n", size_text(report.bytes_read), seconds,
                           gib_per_s);
  return Json{{"ok", report.ok()},  {"store", fmt::format("{:016x}", claimed->choice().store_id)},
              {"commits", commits}, {"bytes_read", report.bytes_read},
              {"seconds", seconds}, {"gib_per_s", gib_per_s}};
}

}  // namespace

void add_verify_command(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<VerifyArguments>();
  CLI::App* command =
      app.add_subcommand("verify",
                         "Read every plane of every commit and hold it against its "
                         "checksums; what commits share is read for each. Locks the store: the "
                         "directories must be writable, unless their file system is mounted "
                         "read-only");
  add_directories(*command, arguments->directories)->required();
  command
      ->add_option("--commit", arguments->commit,
                   "Only the commit of this number, as sluice inspect shows it")
      ->check(CLI::PositiveNumber);
  command->callback([arguments, &chosen] { chosen = [arguments] { return run(*arguments); }; });
}

}  // namespace sluice::tools
