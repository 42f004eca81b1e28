#include <sys/stat.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/block_device.hpp"
#include "tools/command.hpp"
#include "tools/options.hpp"
#include "tools/sizes.hpp"
#include "tools/store_view.hpp"
#include "tools/table.hpp"

namespace sluice::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kWearNote =
    "endurance used and bytes written over the drive's life are not known here: ask the drive, for example "
    "with "
    "smartctl -a";

std::string_view kind_of(const StoreView& view) {
  const store::ExistingRank* made = view.made();
  if (made == nullptr) return "cut short";
  if (made->superblock->keep_commits == 0) return "scratch";
  return view.commits.empty() ? "without a commit" : "durable";
}

std::optional<std::uint64_t> allocated_bytes(const io::File& file) {
  struct stat information = {};
  if (::fstat(file.fd(), &information) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(information.st_blocks) * 512;
}

Json or_null(const std::optional<std::uint64_t>& value) { return value ? Json(*value) : Json(nullptr); }

// Unpadded bytes of all planes of one rank, and what one step writes of them at most.
struct RankBytes {
  std::uint64_t state = 0;
  std::uint64_t step_writes = 0;
};

Result<RankBytes> bytes_of(const store::ExistingRank& rank) {
  RankBytes bytes;
  const store::Superblock& superblock = *rank.superblock;
  SLUICE_ASSIGN_OR_RETURN(const store::ElementLayout layout,
                          store::ElementLayout::build(store::specs_of(rank.catalog),
                                                      {superblock.chunk_elements, superblock.grid_bytes}));
  for (std::uint32_t chunk = 0; chunk < layout.chunks().size(); ++chunk) {
    const store::ChunkLayout& of_chunk = layout.chunks()[chunk];
    const store::ClassLayout& of_class = layout.classes()[of_chunk.class_index];
    for (const store::Segment& segment : layout.segments_of(chunk))
      for (const store::PlaneFormat& plane : of_class.planes) bytes.state += plane.bytes(segment.count);
    if (of_class.policy != Policy::kFrozen) bytes.step_writes += of_chunk.record.bytes;
  }
  return bytes;
}

Json drive_json(const store::ExistingDrive& drive) {
  const std::optional<memory::BlockDevice> device = memory::find_drive(drive.root->path()).device;
  Json json{{"directory", drive.root->path()}, {"path", drive.rank.path()}};
  json["drive"] = drive.superblock ? Json(drive.superblock->drive) : Json(nullptr);
  json["container_bytes"] = nullptr;
  json["allocated_bytes"] = nullptr;
  if (drive.data) {
    if (const auto size = drive.data->size(); size.ok()) json["container_bytes"] = *size;
    json["allocated_bytes"] = or_null(allocated_bytes(*drive.data));
  }
  json["device"] = device ? describe_device(*device) : "";
  json["device_bytes_written"] = device ? or_null(bytes_written(*device)) : Json(nullptr);
  return json;
}

Result<Json> rank_json(const store::ExistingRank& rank) {
  auto drives = Json::array();
  for (const store::ExistingDrive& drive : rank.drives) drives.push_back(drive_json(drive));
  Json json{{"rank", rank.rank},
            {"made", rank.superblock.has_value()},
            {"whole", rank.whole},
            {"missing", rank.missing},
            {"state_bytes", nullptr},
            {"step_writes_bytes", nullptr},
            {"chunks", rank.catalog.chunks.size()},
            {"drives", std::move(drives)}};
  if (rank.superblock && rank.superblock->keep_commits > 0) {
    SLUICE_ASSIGN_OR_RETURN(const RankBytes bytes, bytes_of(rank));
    json["state_bytes"] = bytes.state;
    json["step_writes_bytes"] = bytes.step_writes;
  }
  return json;
}

// Of the first rank; step counts are those of its newest commit.
Json parameters_json(const StoreView& view) {
  auto json = Json::array();
  const store::ExistingRank* made = view.made();
  if (made == nullptr) return json;
  const store::Catalog& catalog = made->catalog;
  const std::vector<store::ParameterSpec> specs = store::specs_of(catalog);
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const store::ParameterSpec& spec = specs[i];
    std::uint64_t bytes = 0;
    auto planes = Json::array(), plane_names = Json::array();
    for (const store::PlaneFormat& plane : store::planes_of(spec.policy, spec.optimizer, spec.frozen_dtype)) {
      planes.push_back(dtype_name(plane.dtype));
      plane_names.push_back(store::plane_name(plane.plane));
      bytes += plane.bytes(spec.elements);
    }
    auto aliases = Json::array();
    for (const store::StoredAlias& alias : catalog.aliases) {
      if (alias.parameter == i) aliases.push_back(alias.name);
    }
    const bool stepped = spec.policy != Policy::kFrozen;
    json.push_back({{"name", spec.name},
                    {"shape", catalog.parameters[i].shape},
                    {"elements", spec.elements},
                    {"policy", policy_name(spec.policy)},
                    {"dtype", planes.empty() ? Json(nullptr) : planes[0]},
                    {"planes", planes},
                    {"plane_names", std::move(plane_names)},
                    {"bytes", bytes},
                    {"group", spec.group},
                    {"optimizer", stepped ? Json(sluice::kind_of(spec.optimizer).name) : Json(nullptr)},
                    {"step_count", made->commits.empty() ? Json(nullptr)
                                                         : Json(made->commits.back().record.step_counts[i])},
                    {"aliases", std::move(aliases)}});
  }
  return json;
}

Result<Json> store_json(const StoreView& view) {
  Json json{{"id", fmt::format("{:016x}", view.id)},
            {"kind", kind_of(view)},
            {"owner_pid", view.owner ? Json(view.owner->pid) : Json(nullptr)},
            {"whole", view.missing.empty()},
            {"missing", view.missing},
            {"trouble", view.trouble},
            {"superseded", view.superseded}};
  if (const store::ExistingRank* made = view.made(); made != nullptr) {
    const store::Superblock& superblock = *made->superblock;
    json.update({{"generation", superblock.generation},
                 {"world", superblock.world},
                 {"drives", superblock.drives},
                 {"keep_commits", superblock.keep_commits},
                 {"undo", superblock.undo == Undo::kOn ? "on" : "off"},
                 {"chunk_elements", superblock.chunk_elements},
                 {"grid_bytes", superblock.grid_bytes}});
  }
  auto commits = Json::array();
  for (const CommitView& commit : view.commits) {
    commits.push_back({{"number", commit.number},
                       {"steps", commit.steps},
                       {"ranks", commit.ranks},
                       {"held_by_all", view.held_by_all(commit)},
                       {"usable", commit.usable},
                       {"user_bytes", commit.user_bytes}});
  }
  json["commits"] = std::move(commits);

  auto ranks = Json::array();
  std::uint64_t state_bytes = 0, step_writes = 0, container_bytes = 0, allocated = 0;
  const auto number = [](const Json& value) { return value.is_null() ? 0 : value.get<std::uint64_t>(); };
  for (const store::ExistingRank& rank : view.ranks) {
    SLUICE_ASSIGN_OR_RETURN(Json of_rank, rank_json(rank));
    state_bytes += number(of_rank["state_bytes"]);
    step_writes += number(of_rank["step_writes_bytes"]);
    for (const Json& drive : of_rank["drives"]) {
      container_bytes += number(drive["container_bytes"]);
      allocated += number(drive["allocated_bytes"]);
    }
    ranks.push_back(std::move(of_rank));
  }
  json["state_bytes"] = state_bytes;
  json["step_writes_bytes"] = step_writes;
  json["tiers"] = {{"nvme", {{"container_bytes", container_bytes}, {"allocated_bytes", allocated}}},
                   {"host", "what is in memory is known to the engine that has the store open alone"}};
  json["ranks"] = std::move(ranks);
  json["parameters"] = parameters_json(view);
  return json;
}

std::string size_of(const Json& value) {
  return value.is_null() ? "unknown" : size_text(value.get<std::uint64_t>());
}

std::string settings_text(const Json& store) {
  std::string text =
      fmt::format("store {}: {}", store["id"].get<std::string>(), store["kind"].get<std::string>());
  if (store.contains("generation")) {
    text += fmt::format(
        ", generation {}, {} ranks on {} drives each, keeps {} commits, undo {}, {} elements a chunk",
        store["generation"].get<std::uint64_t>(), store["world"].get<std::uint64_t>(),
        store["drives"].get<std::uint64_t>(), store["keep_commits"].get<std::uint64_t>(),
        store["undo"].get<std::string>(), store["chunk_elements"].get<std::uint64_t>());
  }
  text += '\n';
  if (!store["owner_pid"].is_null())
    text += fmt::format("in use by process {}: it may change meanwhile\n",
                        store["owner_pid"].get<std::int64_t>());
  for (const Json& missing : store["missing"]) text += "missing: " + missing.get<std::string>() + '\n';
  if (!store["trouble"].get<std::string>().empty())
    text += "refused by engines: " + store["trouble"].get<std::string>() + '\n';
  if (store["superseded"].get<bool>())
    text += "superseded: the next engine goes on from another store here and removes this one\n";
  return text;
}

std::string store_text(const Json& store) {
  std::string text = settings_text(store);
  if (!store["commits"].empty()) {
    Table commits({"commit", "usable", "steps", "held by ranks", "user bytes"});
    for (const Json& commit : store["commits"]) {
      const auto ranks = commit["ranks"].get<std::vector<std::uint32_t>>();
      commits.add({std::to_string(commit["number"].get<std::uint64_t>()),
                   commit["usable"].get<bool>() ? "yes" : "no",
                   std::to_string(commit["steps"].get<std::uint64_t>()),
                   commit["held_by_all"].get<bool>() ? "all" : fmt::format("only {}", fmt::join(ranks, " ")),
                   size_of(commit["user_bytes"])});
    }
    text += commits.text();
  }
  if (!store["parameters"].empty()) {
    Table parameters({"parameter", "shape", "policy", "dtype", "elements", "bytes", "steps"});
    for (const Json& parameter : store["parameters"]) {
      std::string name = parameter["name"].get<std::string>();
      for (const Json& alias : parameter["aliases"]) name += " = " + alias.get<std::string>();
      const auto shape = parameter["shape"].get<std::vector<std::int64_t>>();
      parameters.add({name, fmt::format("({})", fmt::join(shape, ", ")),
                      parameter["policy"].get<std::string>(), parameter["dtype"].get<std::string>(),
                      std::to_string(parameter["elements"].get<std::uint64_t>()), size_of(parameter["bytes"]),
                      parameter["step_count"].is_null()
                          ? ""
                          : std::to_string(parameter["step_count"].get<std::uint64_t>())});
    }
    text += parameters.text();
    text += fmt::format("state {}; a step writes at most {}\n", size_of(store["state_bytes"]),
                        size_of(store["step_writes_bytes"]));
  }
  Table drives({"rank", "drive", "directory", "container", "allocated", "device", "written since boot"});
  for (const Json& rank : store["ranks"]) {
    for (const Json& drive : rank["drives"]) {
      drives.add({std::to_string(rank["rank"].get<std::uint32_t>()),
                  drive["drive"].is_null() ? "" : std::to_string(drive["drive"].get<std::uint32_t>()),
                  drive["directory"].get<std::string>(), size_of(drive["container_bytes"]),
                  size_of(drive["allocated_bytes"]), drive["device"].get<std::string>(),
                  size_of(drive["device_bytes_written"])});
    }
  }
  return text + drives.text();
}

Result<Json> run(const std::vector<std::string>& directories) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<StoreView> views, look_at_stores(directories));
  auto stores = Json::array();
  for (const StoreView& view : views) {
    SLUICE_ASSIGN_OR_RETURN(Json json, store_json(view));
    std::cerr << store_text(json) << '\n';
    stores.push_back(std::move(json));
  }
  std::cerr << (views.empty() ? "no store in these directories" : kWearNote) << '\n';
  return Json{{"stores", std::move(stores)}, {"wear", kWearNote}};
}

}  // namespace

void add_inspect_command(CLI::App& app, Command& chosen) {
  auto directories = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand("inspect", "Say what stores are there and what they hold; changes nothing");
  add_directories(*command, *directories)->required();
  command->callback([directories, &chosen] { chosen = [directories] { return run(*directories); }; });
}

}  // namespace sluice::tools
