#include "tools/verify_store.hpp"

#include <algorithm>

namespace sluice::tools {
namespace {

bool overlap(const Range& a, const Range& b) {
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

// Whether anything of the same range and plane is bad in a commit.
bool spoils(const VerifiedCommit& commit, const store::BadPlane& plane) {
  return std::ranges::any_of(commit.bad, [&](const FoundBad& found) {
    return found.plane.parameter == plane.parameter && found.plane.plane == plane.plane &&
           overlap(found.plane.range, plane.range);
  });
}

void find_good_copies(std::vector<VerifiedCommit>& newest_first) {
  for (std::size_t i = 0; i < newest_first.size(); ++i) {
    for (FoundBad& found : newest_first[i].bad) {
      for (std::size_t older = i + 1; older < newest_first.size() && !found.good_in; ++older) {
        if (!spoils(newest_first[older], found.plane)) found.good_in = newest_first[older].number;
      }
    }
  }
}

}  // namespace

bool VerifyReport::ok() const {
  return std::ranges::all_of(commits, [](const VerifiedCommit& commit) { return commit.bad.empty(); });
}

Result<VerifyReport> verify_store(ClaimedStore& claimed, VerifyScope scope,
                                  const std::function<Status(std::uint64_t bytes_read)>& on_progress) {
  std::vector<std::uint64_t> numbers = {claimed.choice().commit};
  if (scope == VerifyScope::kAllCommits)
    numbers.assign(claimed.choice().kept.rbegin(), claimed.choice().kept.rend());
  VerifyReport report;
  for (const std::uint64_t number : numbers) {
    SLUICE_ASSIGN_OR_RETURN(store::StoreReader* const reader, claimed.open(number));
    VerifiedCommit& commit = report.commits.emplace_back(VerifiedCommit{.number = number, .bad = {}});
    const std::uint64_t read_before = report.bytes_read;
    SLUICE_RETURN_IF_ERROR(reader->verify(
        [&](const store::BadPlane& plane) { commit.bad.push_back({.plane = plane, .good_in = {}}); },
        [&](std::uint64_t bytes_read) {
          report.bytes_read = read_before + bytes_read;
          return on_progress(report.bytes_read);
        }));
  }
  find_good_copies(report.commits);
  return report;
}

}  // namespace sluice::tools
