#include "store/choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

namespace sluice::store {
namespace {

constexpr std::size_t kNamedMax = 8;  // of what a message lists

/// What was found of one store that keeps commits.
struct Candidate {
  std::uint64_t store_id = 0;
  std::uint64_t generation = 0;
  std::uint64_t parent_store_id = 0;
  std::uint32_t world = 0;
  std::uint32_t keep_commits = 0;
  bool committed = false;
  bool held = false;                           // some rank holds a commit
  std::map<std::uint32_t, RankSummary> ranks;  // those that are there
  std::vector<std::string> contradictions;     // what its ranks say otherwise than one of them
  std::vector<std::uint64_t> usable;           // ascending
};

std::span<const std::uint64_t> commits_of(const RankSummary& rank) {
  return std::span(rank.commits).first(std::min<std::size_t>(rank.held, rank.commits.size()));
}

bool holds(const RankSummary& rank, std::uint64_t commit, std::uint64_t steps) {
  const std::span<const std::uint64_t> commits = commits_of(rank);
  const auto at = std::ranges::lower_bound(commits, commit);
  return at != commits.end() && *at == commit &&
         rank.steps[static_cast<std::size_t>(at - commits.begin())] == steps;
}

void add(Candidate& candidate, const RankSummary& rank) {
  candidate.committed |= rank.committed != 0;
  candidate.held |= rank.held > 0;
  if (!candidate.ranks.emplace(rank.rank, rank).second) {
    candidate.contradictions.push_back(fmt::format("rank {} is found twice", rank.rank));
  }
  if (rank.world == 0) return;  // says nothing of the store
  if (candidate.world == 0) {
    candidate.world = rank.world;
    candidate.keep_commits = rank.keep_commits;
    candidate.generation = rank.generation;
    candidate.parent_store_id = rank.parent_store_id;
  } else if (rank.world != candidate.world || rank.keep_commits != candidate.keep_commits ||
             rank.generation != candidate.generation || rank.parent_store_id != candidate.parent_store_id) {
    candidate.contradictions.push_back(
        fmt::format("rank {} says world {}, keep_commits {}, generation {}, parent {:016x}", rank.rank,
                    rank.world, rank.keep_commits, rank.generation, rank.parent_store_id));
  }
}

bool all_there(const Candidate& candidate) {
  return candidate.contradictions.empty() && candidate.ranks.size() == candidate.world &&
         std::ranges::all_of(candidate.ranks, [](const auto& rank) { return rank.second.whole != 0; });
}

std::vector<std::uint64_t> usable_of(const Candidate& candidate) {
  if (!all_there(candidate)) return {};
  const RankSummary& first = candidate.ranks.begin()->second;
  std::vector<std::uint64_t> common;
  for (std::size_t i = 0; i < commits_of(first).size(); ++i)
    if (std::ranges::all_of(candidate.ranks, [&](const auto& rank) {
          return holds(rank.second, first.commits[i], first.steps[i]);
        }))
      common.push_back(first.commits[i]);
  const std::size_t surplus = common.size() - std::min<std::size_t>(common.size(), candidate.keep_commits);
  common.erase(common.begin(), common.begin() + static_cast<std::ptrdiff_t>(surplus));
  return common;
}

std::string name_of(const Candidate& candidate) {
  return fmt::format("store {:016x} (generation {}, world {})", candidate.store_id, candidate.generation,
                     candidate.world);
}

/// Why a rank is of no use; empty where it has commits that only the others lack.
std::string trouble_of(const RankSummary& rank) {
  if (rank.world == 0) return fmt::format("rank {} was never made whole", rank.rank);
  if (rank.whole == 0) {
    return fmt::format("rank {} lacks drive {} of {}", rank.rank, rank.missing_drive, rank.drives);
  }
  if (rank.held == 0) return fmt::format("rank {} holds no whole commit", rank.rank);
  return "";
}

/// Why no commit is held by all ranks.
std::string why_unusable(const Candidate& candidate) {
  std::vector<std::string> troubles = candidate.contradictions;
  std::uint64_t expected = 0;  // the rank that should come next
  const auto miss_until = [&](std::uint64_t rank) {
    for (; expected < rank && troubles.size() <= kNamedMax; ++expected) {
      troubles.push_back(fmt::format("rank {} is in none of the directories", expected));
    }
  };
  for (const auto& [number, rank] : candidate.ranks) {
    miss_until(number);
    expected = std::uint64_t{number} + 1;
    std::string trouble = trouble_of(rank);
    if (!trouble.empty()) troubles.push_back(std::move(trouble));
  }
  miss_until(candidate.world);
  if (troubles.empty()) {
    for (const auto& [number, rank] : candidate.ranks) {
      troubles.push_back(fmt::format("rank {} holds {}", number, fmt::join(commits_of(rank), ", ")));
    }
  }
  if (troubles.size() > kNamedMax) {
    troubles.resize(kNamedMax);
    troubles.push_back("and more");
  }
  return fmt::format("{} was committed to and no commit is held by all its ranks: {}", name_of(candidate),
                     fmt::join(troubles, "; "));
}

/// Those that keep commits, the greatest generation first.
std::vector<Candidate> candidates_of(std::span<const RankSummary> summaries) {
  std::map<std::uint64_t, Candidate> by_id;
  for (const RankSummary& summary : summaries) {
    Candidate& candidate = by_id[summary.store_id];
    candidate.store_id = summary.store_id;
    add(candidate, summary);
  }
  std::vector<Candidate> candidates;
  for (auto& [id, candidate] : by_id) {
    // Ranks may contradict each other in keep_commits.
    const bool scratch = candidate.keep_commits == 0 && !candidate.committed && !candidate.held;
    if (candidate.world == 0 || scratch) continue;
    candidate.usable = usable_of(candidate);
    candidates.push_back(std::move(candidate));
  }
  std::ranges::stable_sort(candidates, std::greater(), &Candidate::generation);
  return candidates;
}

bool made_from(const Candidate& child, const Candidate& parent) {
  return child.parent_store_id != 0 && child.parent_store_id == parent.store_id &&
         child.generation > parent.generation;
}

/// Whether a commit may have been durable on all ranks: every rank's files were there before the first one,
/// so a commit beside a part that is missing was a whole one, or what a removal left of one that never was.
bool maybe_committed(const Candidate& candidate) {
  return candidate.committed || !candidate.usable.empty() || (candidate.held && !all_there(candidate));
}

/// Whether the other store may be removed for the chosen one.
Status check_beside(const Candidate& chosen, const Candidate& other) {
  if (!maybe_committed(other) || made_from(chosen, other)) return {};
  if (made_from(other, chosen)) {
    return other.committed ? Status(Code::kDataLoss, why_unusable(other)) : Status();
  }
  return Status(Code::kFailedPrecondition,
                fmt::format("{} and {} both were committed to and neither was made from the other: name the "
                            "directories of one of them",
                            name_of(chosen), name_of(other)));
}

Result<std::optional<Choice>> choose(const Candidate& candidate, std::optional<std::uint64_t> wanted) {
  Choice choice{.store_id = candidate.store_id,
                .generation = candidate.generation,
                .world = candidate.world,
                .commit = wanted.value_or(candidate.usable.back())};
  if (!std::ranges::binary_search(candidate.usable, choice.commit)) {
    return Status(Code::kNotFound,
                  fmt::format("commit {} is not there: {} holds {} on all its ranks", choice.commit,
                              name_of(candidate), fmt::join(candidate.usable, ", ")));
  }
  std::ranges::copy_if(candidate.usable, std::back_inserter(choice.kept),
                       [&](std::uint64_t commit) { return commit <= choice.commit; });
  return std::optional(std::move(choice));
}

}  // namespace

Result<std::optional<Choice>> choose_store(std::span<const RankSummary> summaries,
                                           std::optional<std::uint64_t> wanted) {
  const std::vector<Candidate> candidates = candidates_of(summaries);
  // What was made from another has the greater generation and comes first.
  const auto chosen = std::ranges::find_if(candidates, [](const Candidate& c) { return !c.usable.empty(); });
  if (chosen == candidates.end()) {
    const auto lost = std::ranges::find_if(candidates, maybe_committed);
    if (lost != candidates.end()) return Status(Code::kDataLoss, why_unusable(*lost));
    if (!wanted) return std::optional<Choice>();
    return Status(Code::kNotFound,
                  fmt::format("commit {} is not there: no store in the directories holds a commit", *wanted));
  }
  for (const Candidate& other : candidates) {
    if (&other != &*chosen) SLUICE_RETURN_IF_ERROR(check_beside(*chosen, other));
  }
  return choose(*chosen, wanted);
}

}  // namespace sluice::store
