#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "store/catalog.hpp"
#include "store/checksum.hpp"
#include "store/offsets.hpp"
#include "store/optimizer_numbers.hpp"

namespace sluice::store {
namespace {

constexpr std::uint64_t kElementsMax = std::uint64_t{1} << 63;

Status wrong(std::string what) { return Status(Code::kInvalidArgument, std::move(what)); }

/// The class on its drive.
using RunKey = std::pair<std::uint32_t, std::uint32_t>;

Status check_names(const Catalog& catalog) {
  std::unordered_set<std::string_view> names;
  const auto take = [&](std::string_view name) -> Status {
    if (name.empty() || name.size() > kNameBytesMax) {
      return wrong(fmt::format("a name of {} bytes, accepted: 1 to {}", name.size(), kNameBytesMax));
    }
    if (!names.insert(name).second) return wrong(fmt::format("two parameters are named \"{}\"", name));
    return {};
  };
  for (const StoredParameter& parameter : catalog.parameters) SLUICE_RETURN_IF_ERROR(take(parameter.name));
  for (const StoredAlias& alias : catalog.aliases) {
    SLUICE_RETURN_IF_ERROR(take(alias.name));
    if (alias.parameter >= catalog.parameters.size()) {
      return wrong(fmt::format("\"{}\" is tied to parameter {} of {}", alias.name, alias.parameter,
                               catalog.parameters.size()));
    }
  }
  return {};
}

Status check_known(const StoredParameter& parameter) {
  const auto unknown = [](std::string_view what, auto value) {
    return Status(Code::kUnimplemented,
                  fmt::format("{} {}, this build does not have it", what, static_cast<unsigned>(value)));
  };
  if (std::ranges::find(policies(), parameter.policy) == policies().end())
    return unknown("policy", parameter.policy);
  if (parameter.frozen_dtype > DType::kF64) return unknown("dtype", parameter.frozen_dtype);
  if (parameter.gradient > GradientStorage::kBf16Once) return unknown("gradient storage", parameter.gradient);
  SLUICE_RETURN_IF_ERROR(check_alternative(parameter.optimizer));
  const Status together = validate(parameter.policy, optimizer_kinds()[parameter.optimizer].defaults);
  return together.ok() ? Status() : Status(Code::kUnimplemented, together.message());
}

bool same_group(const StoredParameter& a, const StoredParameter& b) {
  return a.policy == b.policy && a.optimizer == b.optimizer && a.frozen_dtype == b.frozen_dtype &&
         a.gradient == b.gradient && a.rank == b.rank && a.world == b.world;
}

Status check_parameters(const Catalog& catalog) {
  std::unordered_map<std::uint32_t, const StoredParameter*> groups;
  for (const StoredParameter& parameter : catalog.parameters) {
    const std::string context = fmt::format("parameter \"{}\"", parameter.name);
    SLUICE_RETURN_IF_ERROR(check_known(parameter).with_context(context));
    SLUICE_RETURN_IF_ERROR(count_elements(parameter.shape).status().with_context(context));
    if (parameter.rank >= parameter.world) {
      return wrong(
          fmt::format("{}: rank {} is outside its world of {}", context, parameter.rank, parameter.world));
    }
    const StoredParameter& first = *groups.emplace(parameter.group, &parameter).first->second;
    if (!same_group(first, parameter)) {
      return wrong(fmt::format("{} and \"{}\" are of group {} and differ in what a group decides", context,
                               first.name, parameter.group));
    }
  }
  return {};
}

/// That the chunks have room for the parameters' elements and no more; so a layout of them has no more
/// chunks.
Status check_elements(const Catalog& catalog, std::span<const ParameterSpec> specs) {
  std::uint64_t needed = 0;
  for (const ParameterSpec& spec : specs) {
    const std::uint64_t shard = shard_of(spec.elements, spec.rank, spec.world).count;
    const std::uint64_t granules = shard / kGranule + (shard % kGranule != 0);
    if (__builtin_add_overflow(needed, granules * kGranule, &needed)) {
      return wrong("the parameters have more elements than 64 bits count");
    }
  }
  std::uint64_t given = 0;  // at most 2^32 * 2^32
  for (const StoredChunk& chunk : catalog.chunks) given += chunk.elements;
  if (needed == given) return {};
  return wrong(
      fmt::format("the parameters need chunks of {} elements together, they have {}", needed, given));
}

/// The layout of the catalog's parameters whose chunks are the catalog's.
Result<ElementLayout> matching_layout(const Catalog& catalog, const LayoutOptions& options) {
  const std::vector<ParameterSpec> specs = specs_of(catalog);
  SLUICE_RETURN_IF_ERROR(check_elements(catalog, specs));
  // Fewer elements a chunk than the largest has would give more chunks than the catalog's bytes paid for.
  for (const StoredChunk& chunk : catalog.chunks) {
    if (chunk.elements == 0 || chunk.elements > options.chunk_elements) {
      return wrong(
          fmt::format("a chunk of {} elements, chunk_elements = {}", chunk.elements, options.chunk_elements));
    }
  }
  SLUICE_ASSIGN_OR_RETURN(ElementLayout layout, ElementLayout::build(specs, options));
  const bool same = std::ranges::equal(
      layout.chunks(), catalog.chunks, [](const ChunkLayout& laid_out, const StoredChunk& stored) {
        return laid_out.class_index == stored.class_index && laid_out.elements == stored.elements;
      });
  if (!same) {
    return wrong(fmt::format("its {} chunks are not those of its parameters with chunk_elements = {}",
                             catalog.chunks.size(), options.chunk_elements));
  }
  return layout;
}

Status check_slots(const Catalog& catalog, const ElementLayout& layout) {
  std::map<RunKey, std::uint64_t> chunks;  // by run
  for (const StoredChunk& chunk : catalog.chunks) ++chunks[{chunk.class_index, chunk.drive}];
  std::map<RunKey, const SlotRun*> runs;
  for (const SlotRun& run : catalog.runs) {
    const std::string context = fmt::format("slots of class {} on drive {}", run.class_index, run.drive);
    if (run.class_index >= layout.classes().size()) {
      return wrong(fmt::format("{}: there are {} classes", context, layout.classes().size()));
    }
    if (!runs.emplace(RunKey{run.class_index, run.drive}, &run).second) {
      return wrong(fmt::format("{}: there are two such runs", context));
    }
    std::uint64_t end = 0;
    if (run.slots == 0 || run.slot_bytes == 0 || __builtin_mul_overflow(run.slots, run.slot_bytes, &end) ||
        __builtin_add_overflow(end, run.first_offset, &end) || end > kFileBytesMax) {
      return wrong(fmt::format("{}: {} of {} bytes from {} on, accepted: at least one, within 2^63 - 1 bytes",
                               context, run.slots, run.slot_bytes, run.first_offset));
    }
  }
  for (const auto& [key, count] : chunks) {
    const auto run = runs.find(key);
    const std::uint64_t slots = run == runs.end() ? 0 : run->second->slots;
    if (slots < count) {
      return wrong(fmt::format("{} chunks of class {} on drive {} and {} slots for them", count, key.first,
                               key.second, slots));
    }
  }
  std::vector<std::size_t> largest(layout.classes().size(), catalog.chunks.size());  // chunk, by class
  const auto record_bytes = [&](std::size_t index) { return layout.chunks()[index].record.bytes; };
  for (std::size_t index = 0; index < catalog.chunks.size(); ++index) {
    std::size_t& chunk = largest[catalog.chunks[index].class_index];
    if (chunk == catalog.chunks.size() || record_bytes(index) > record_bytes(chunk)) chunk = index;
  }
  for (const SlotRun& run : catalog.runs) {
    const std::size_t index = largest[run.class_index];
    if (index < catalog.chunks.size() && record_bytes(index) > run.slot_bytes) {
      return wrong(fmt::format("chunk {} has a record of {} bytes and slots of {}", index,
                               record_bytes(index), run.slot_bytes));
    }
  }
  return {};
}

Status check_overlaps(const Catalog& catalog) {
  std::vector<const SlotRun*> runs;
  for (const SlotRun& run : catalog.runs) runs.push_back(&run);
  std::ranges::sort(runs, {}, [](const SlotRun* run) { return std::pair(run->drive, run->first_offset); });
  for (std::size_t index = 1; index < runs.size(); ++index) {
    const SlotRun& before = *runs[index - 1];
    const SlotRun& after = *runs[index];
    if (before.drive == after.drive &&
        before.first_offset + before.slots * before.slot_bytes > after.first_offset) {
      return wrong(fmt::format(
          "on drive {} the slots of class {} from {} on overlap those of class {} from {} on", after.drive,
          before.class_index, before.first_offset, after.class_index, after.first_offset));
    }
  }
  return {};
}

/// The smallest that the chunks can have been made with: where a class has two, its first has just as many.
LayoutOptions least_options(const Catalog& catalog) {
  std::uint32_t elements = 1;
  for (const StoredChunk& chunk : catalog.chunks) elements = std::max(elements, chunk.elements);
  return {.chunk_elements = tile_count(elements) * kTile, .grid_bytes = kSuperblockBytes};
}

}  // namespace

Result<std::uint64_t> count_elements(std::span<const std::int64_t> shape) {
  std::uint64_t elements = 1;
  bool fits = true;
  for (const std::int64_t extent : shape) {
    if (extent < 0) return wrong(fmt::format("shape holds {}, accepted: >= 0", extent));
    fits = fits && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(extent), &elements);
  }
  if (std::ranges::find(shape, 0) != shape.end()) return std::uint64_t{0};
  if (!fits || elements > kElementsMax) return wrong("its shape has more than 2^63 elements");
  return elements;
}

std::vector<ParameterSpec> specs_of(const Catalog& catalog) {
  std::vector<ParameterSpec> specs;
  specs.reserve(catalog.parameters.size());
  for (const StoredParameter& parameter : catalog.parameters) {
    specs.push_back({.name = parameter.name,
                     .elements = count_elements(parameter.shape).value(),
                     .group = parameter.group,
                     .policy = parameter.policy,
                     .optimizer = optimizer_from(parameter.optimizer, {}).value(),
                     .frozen_dtype = parameter.frozen_dtype,
                     .gradient = parameter.gradient,
                     .rank = parameter.rank,
                     .world = parameter.world});
  }
  return specs;
}

Status check(const Catalog& catalog) {
  SLUICE_RETURN_IF_ERROR(check_names(catalog));
  SLUICE_RETURN_IF_ERROR(check_parameters(catalog));
  SLUICE_ASSIGN_OR_RETURN(const ElementLayout layout, matching_layout(catalog, least_options(catalog)));
  SLUICE_RETURN_IF_ERROR(check_slots(catalog, layout));
  return check_overlaps(catalog);
}

Result<ElementLayout> layout_of(const Catalog& catalog, const Superblock& superblock) {
  auto layout = matching_layout(
      catalog, {.chunk_elements = superblock.chunk_elements, .grid_bytes = superblock.grid_bytes});
  if (!layout.ok()) return Status(Code::kDataLoss, layout.status().message());
  const Status status = check_slots(catalog, *layout);
  if (!status.ok()) return Status(Code::kDataLoss, status.message());
  return layout;
}

Status check_runs(const Catalog& catalog, const Superblock& superblock) {
  for (const SlotRun& run : catalog.runs) {
    const std::uint64_t end = run.first_offset + run.slots * run.slot_bytes;
    const bool on_grid =
        run.first_offset % superblock.grid_bytes == 0 && run.slot_bytes % superblock.grid_bytes == 0;
    const bool inside = run.first_offset >= superblock.slots_offset && end <= superblock.container_bytes;
    if (run.drive < superblock.drives && (run.drive != superblock.drive || (on_grid && inside))) continue;
    return Status(
        Code::kDataLoss,
        fmt::format("slots of class {} on drive {} of {}: {} of {} bytes from {} on do not lie on the grid "
                    "of {} bytes between {} and {}",
                    run.class_index, run.drive, superblock.drives, run.slots, run.slot_bytes,
                    run.first_offset, superblock.grid_bytes, superblock.slots_offset,
                    superblock.container_bytes));
  }
  return {};
}

}  // namespace sluice::store
