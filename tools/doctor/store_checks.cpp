#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/doctor/checks.hpp"
#include "tools/store_view.hpp"

namespace sluice::tools {
namespace {

bool lies_in(const StoreView& view, const std::string& directory) {
  return std::ranges::any_of(view.ranks, [&](const store::ExistingRank& rank) {
    return std::ranges::any_of(
        rank.drives, [&](const store::ExistingDrive& drive) { return drive.root->path() == directory; });
  });
}

// What a crash costs, and what would make that less; no remedy: nothing would.
struct Cost {
  std::string text;
  std::string remedy;
};

Cost cost_of(const StoreView& view) {
  const store::ExistingRank* made = view.made();
  const bool live = view.owner.has_value();
  const char* replaced = "none needed: the next run in this directory replaces it";
  if (made == nullptr) return {"its making was cut short, it holds nothing", replaced};
  if (view.superseded)
    return {"superseded by another store that is there", "none needed: the next run removes it"};
  if (!view.missing.empty()) {
    return {fmt::format("it is not whole: {}", fmt::join(view.missing, "; ")),
            "name the directories of all its drives and ranks together"};
  }
  if (made->superblock->keep_commits == 0) {
    if (!live) return {"a scratch store that its run left behind", replaced};
    return {"a scratch store: a crash loses all of it",
            "keep commits: EngineOptions::keep_commits of 1 or more, sluice train --commit-every"};
  }
  if (!view.trouble.empty())
    return {view.trouble, "put back what is missing or damaged, or remove the store: engines refuse it"};
  const auto newest = std::ranges::find_if(view.commits.rbegin(), view.commits.rend(), &CommitView::usable);
  if (newest == view.commits.rend()) {
    if (!live) return {"no commit was made in it", replaced};
    return {"nothing is committed yet: a crash loses all of it", "commit"};
  }
  Cost cost{
      fmt::format("durable, commit {} after step {} is the newest of {}; a crash loses the steps since then",
                  newest->number, newest->steps, std::ranges::count_if(view.commits, &CommitView::usable)),
      ""};
  if (made->superblock->undo == Undo::kOff) {
    cost.text += "; undo is off: a failed step loses them too";
    cost.remedy = "give the store undo, at the price of one more slot a chunk: EngineOptions::undo";
  }
  return cost;
}

Check check_store(const std::string& name, const StoreView& view) {
  const Cost cost = cost_of(view);
  std::string detail = fmt::format("store {:016x}: {}", view.id, cost.text);
  detail += view.owner ? fmt::format("; in use by process {}", view.owner->pid) : "; not in use";
  return {name, cost.remedy.empty() ? CheckStatus::kOk : CheckStatus::kDegraded, detail, cost.remedy};
}

}  // namespace

std::vector<Check> check_stores(const std::vector<std::string>& directories) {
  std::vector<Check> checks;
  const Result<std::vector<StoreView>> views = look_at_stores(directories);
  for (const std::string& directory : directories) {
    const std::string name = "stores in " + directory;
    if (!views.ok()) {
      checks.push_back({name, CheckStatus::kMissing, views.status().message(),
                        "set right what is named, or name another directory"});
      continue;
    }
    const std::size_t before = checks.size();
    for (const StoreView& view : *views) {
      if (lies_in(view, directory)) checks.push_back(check_store(name, view));
    }
    if (checks.size() == before) checks.push_back({name, CheckStatus::kOk, "none", ""});
  }
  return checks;
}

}  // namespace sluice::tools
