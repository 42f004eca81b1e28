#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/core.hpp"
#include "engine/record_values.hpp"
#include "store/checksum.hpp"
#include "store/element_values.hpp"

namespace sluice::engine {
namespace {

std::string_view view_name(View view) {
  switch (view) {
    case View::kWeight:
      return "weight";
    case View::kMaster:
      return "master";
    case View::kMoment1:
      return "moment1";
    case View::kMoment2:
      return "moment2";
    case View::kCount:
      return "count";
    case View::kScale1:
      return "scale1";
    case View::kScale2:
      return "scale2";
  }
  return "?";
}

bool is_scale(View view) { return view == View::kScale1 || view == View::kScale2; }

/// What an 8-bit moment is kept as, beside its scales.
bool is_code(Policy policy, View view, DType dtype) {
  return policy == Policy::kMoments8 && dtype == DType::kU8 &&
         (view == View::kMoment1 || view == View::kMoment2);
}

/// Values of a view before those of an element. Requires: of scales the first of a granule.
std::uint64_t values_before(View view, std::uint64_t element) {
  return is_scale(view) ? element / store::kGranule : element;
}

/// A region of Core's, in its chunk's record.
template <class Region>
RecordElements elements_of(const State& state, const Region& region, std::byte* record) {
  return {state.chunk_layout(region.chunk),
          state.class_of(region.chunk),
          record,
          region.offset,
          region.count,
          region.parameter_end};
}

}  // namespace

std::vector<Core::Region> Core::regions_of(std::uint32_t tensor, Range range) const {
  std::vector<Region> regions;
  const std::uint64_t last = range.first + range.count;
  for (const store::Piece& piece : state_.layout.pieces_of(tensor)) {
    const store::Segment& segment = state_.layout.segments()[piece.segment];
    const std::uint64_t begin = std::max(range.first, segment.first);
    const std::uint64_t end = std::min(last, segment.first + segment.count);
    if (begin < end)
      regions.push_back({.chunk = piece.chunk,
                         .offset = segment.offset + static_cast<std::uint32_t>(begin - segment.first),
                         .count = static_cast<std::uint32_t>(end - begin),
                         .parameter_end = segment.offset + segment.count,
                         .position = begin - range.first});
  }
  return regions;
}

Status Core::check_access(std::uint32_t tensor, View view, Range range, DType dtype) const {
  const Tensor& of = state_.registry.tensors()[tensor];
  const auto refuse = [&](std::string what) {
    return Status(Code::kInvalidArgument, fmt::format("'{}': {}", of.name, what));
  };
  const bool frozen = state_.registry.frozen(tensor);
  if (frozen && view != View::kWeight) return refuse("a frozen parameter has weights only");
  if (view == View::kCount) {
    if (dtype != DType::kU64 || range.first != 0 || range.count != 1)
      return refuse("a count is one U64, Range{0, 1}");
    return {};
  }
  if (range.first > of.elements || range.count > of.elements - range.first)
    return refuse(fmt::format("range [{}, {} + {}), accepted: within [0, {})", range.first, range.first,
                              range.count, of.elements));
  const GroupOptions& group = state_.registry.group_of(tensor).options;
  if (!frozen && !has_view(store::planes_of(group.policy, group.optimizer, group.frozen_dtype), view))
    return refuse(fmt::format("policy {} with optimizer {} keeps no {}", policy_name(group.policy),
                              kind_of(group.optimizer).name, view_name(view)));
  if (is_scale(view)) {
    if (range.first % store::kGranule != 0 || dtype != DType::kF32)
      return refuse(fmt::format("{} as {} from element {} on, accepted: as F32, from a multiple of {} on",
                                view_name(view), dtype_name(dtype), range.first, store::kGranule));
    return {};
  }
  if (is_code(group.policy, view, dtype)) return {};
  const DType weight = state_.registry.weight_dtype(tensor);
  if (!store::converts(dtype) || !store::converts(weight)) {
    if (!(frozen && dtype == weight))
      return refuse(fmt::format("dtype = {}, accepted: {}", dtype_name(dtype),
                                store::converts(weight) ? "F32, BF16, F16" : dtype_name(weight)));
  }
  return {};
}

Status Core::between_passes() {
  return loop().call([&](Ticket& ticket) {
    const ActivePass* pass = training_ ? &*training_ : inner_ ? &*inner_ : nullptr;
    loop().complete(
        ticket,
        pass == nullptr
            ? Status()
            : Status(Code::kFailedPrecondition,
                     fmt::format("pass {} is not over: read, write and commit go between passes", pass->id)));
  });
}

Result<std::byte*> Core::take_frame(std::uint32_t chunk) {
  std::byte* frame = nullptr;
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    if (state_.stepped(chunk)) {
      frame = running_->record_frames->try_acquire();  // one of them: no step is under way
      loop().complete(ticket, {});
    } else {
      running_->weights->borrow([&](std::byte* borrowed) {
        frame = borrowed;
        loop().complete(ticket, {});
      });
    }
  }));
  if (frame == nullptr) return Status(Code::kInternal, "no free record frame between passes");
  return frame;
}

void Core::give_back_frame(std::uint32_t chunk, std::byte* frame) {
  loop().post([this, stepped = state_.stepped(chunk), frame] {
    if (stepped)
      running_->record_frames->release(frame);
    else
      running_->weights->give_back(frame);
  });
}

Status Core::load(std::uint32_t chunk, PlaneRange planes, std::byte* frame) {
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    running_->records->read(chunk, planes, frame, io::Priority::kDemand,
                            [&](Status status) { loop().complete(ticket, std::move(status)); });
  }));
  const store::ChunkLayout& layout = state_.chunk_layout(chunk);
  for (std::size_t plane = planes.first; plane < planes.first + planes.count; ++plane) {
    const std::uint64_t checksum = store::plane_checksum(
        frame + layout.record.plane_offsets[plane], layout.elements, state_.class_of(chunk).planes[plane]);
    if (checksum != state_.chunks[chunk].checksums[plane]) return damaged(chunk, planes, frame);
  }
  return {};
}

Status Core::damaged(std::uint32_t chunk, PlaneRange planes, std::byte* frame) {
  return loop().call([&](Ticket& ticket) {
    running_->commits->find_copy(chunk, planes, frame, [&](const std::string& copy) {
      loop().complete(ticket, checksum_mismatch(state_, chunk, "state", copy));
    });
  });
}

Result<io::Place> Core::find_target(std::uint32_t chunk) {
  io::Place target;
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    // A frozen chunk has one slot, and without undo a record is rewritten where it is.
    const bool in_place = !state_.stepped(chunk) || options_.undo == Undo::kOff;
    running_->commits->find_target(chunk, in_place ? Commits::InPlace::kAllowed : Commits::InPlace::kNo,
                                   [&](Result<io::Place> slot) {
                                     if (slot.ok()) target = *slot;
                                     loop().complete(ticket, slot.status());
                                   });
  }));
  return target;
}

Status Core::with_record(std::uint32_t chunk, PlaneRange planes,
                         const std::function<Status(std::byte*)>& use) {
  if (std::byte* record = state_.chunks[chunk].resident) return use(record);
  const Result<std::byte*> frame = take_frame(chunk);
  if (!frame.ok()) return frame.status();
  Status status = load(chunk, planes, *frame);
  if (status.ok()) status = use(*frame);
  give_back_frame(chunk, *frame);
  return status;
}

Status Core::read(ParameterId parameter, View view, Range range, void* target, DType dtype) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
  if (!tensor.ok()) return tensor.status();
  SLUICE_RETURN_IF_ERROR(check_access(*tensor, view, range, dtype));
  std::lock_guard lock(access_mutex_);
  SLUICE_RETURN_IF_ERROR(take_unreported());
  SLUICE_RETURN_IF_ERROR(between_passes());
  if (view == View::kCount) {
    std::memcpy(target, &state_.registry.tensors()[*tensor].step_count, sizeof(std::uint64_t));
    return {};
  }
  const Group& group = state_.registry.group_of(*tensor);
  const Range own = store::shard_of(state_.registry.tensors()[*tensor].elements, group.rank, group.world);
  if (range.count > 0 && (range.first < own.first || range.first + range.count > own.first + own.count))
    return Status(Code::kFailedPrecondition,
                  fmt::format("'{}': range [{}, {} + {}) is not all on rank {}, which holds [{}, {} + {})",
                              state_.registry.tensors()[*tensor].name, range.first, range.first, range.count,
                              group.rank, own.first, own.first, own.count));
  for (const Region& region : regions_of(*tensor, range))
    SLUICE_RETURN_IF_ERROR(with_record(
        region.chunk, planes_of_view(state_.class_of(region.chunk), view), [&](std::byte* record) {
          read_values(
              elements_of(state_, region, record), view,
              static_cast<std::byte*>(target) + values_before(view, region.position) * dtype_bytes(dtype),
              dtype);
          return Status();
        }));
  return {};
}

Status Core::write(ParameterId parameter, View view, Range range, const void* source, DType dtype) {
  const Call call(*this, Need::kSealed);
  if (!call.ok()) return call.status();
  const Result<std::uint32_t> tensor = state_.registry.tensor_of(parameter);
  if (!tensor.ok()) return tensor.status();
  SLUICE_RETURN_IF_ERROR(check_access(*tensor, view, range, dtype));
  const auto* const bytes = static_cast<const std::byte*>(source);
  const Policy policy = state_.registry.group_of(*tensor).options.policy;
  const std::string& name = state_.registry.tensors()[*tensor].name;
  if (is_scale(view) || is_code(policy, view, dtype))
    return Status(
        Code::kInvalidArgument,
        fmt::format("'{}': codes and scales follow from moments, which are written as F32, BF16 or F16",
                    name));
  if (!can_keep(policy, view, {bytes, dtype, range.count}))
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}': {}, which policy moments8 does not keep", name,
                              view == View::kMoment1 ? "an infinite moment1"
                                                     : "a moment2 that is infinite or below 0"));
  std::lock_guard lock(access_mutex_);
  SLUICE_RETURN_IF_ERROR(take_unreported());
  SLUICE_RETURN_IF_ERROR(between_passes());
  SLUICE_RETURN_IF_ERROR(loop().call([&](Ticket& ticket) {
    const std::string leases =
        running_->gather->leases_on([&](std::uint32_t leased) { return leased == *tensor; });
    if (!leases.empty())
      return loop().complete(ticket, Status(Code::kFailedPrecondition,
                                            "write() with open leases on what it changes: " + leases));
    running_->gather->pause([&](Status) { loop().complete(ticket, {}); });
  }));
  Status status;
  if (view == View::kCount) {
    std::memcpy(&state_.registry.tensors()[*tensor].step_count, source, sizeof(std::uint64_t));
  } else {
    status = write_regions(*tensor, regions_of(*tensor, range), [&](const Region& region, std::byte* record) {
      write_values(elements_of(state_, region, record), view, bytes + region.position * dtype_bytes(dtype),
                   dtype);
    });
  }
  const Status resumed = loop().call([&](Ticket& ticket) {
    running_->gather->resume();
    loop().complete(ticket, {});
  });
  return status.ok() ? resumed : status;
}

Status Core::write_regions(std::uint32_t tensor, const std::vector<Region>& regions,
                           const std::function<void(const Region&, std::byte*)>& change) {
  struct Written {
    std::uint32_t chunk = 0;
    io::Place slot;
    std::array<std::uint64_t, kMaxPlanes> checksums{};
    std::uint64_t overflowed = 0;
  };
  std::vector<Written> written;
  bool overwriting = false;  // a slot that is current
  Status status;
  for (const Region& region : regions) {
    Chunk& chunk = state_.chunks[region.chunk];
    if (chunk.resident != nullptr) {  // last, when nothing can fail any more
      status = loop().call([&](Ticket& ticket) {
        running_->commits->when_saved(region.chunk, [&] { loop().complete(ticket, {}); });
      });
      if (!status.ok()) break;
      continue;
    }
    const store::ClassLayout& of_class = state_.class_of(region.chunk);
    const store::ChunkLayout& layout = state_.chunk_layout(region.chunk);
    status = with_record(region.chunk, {0, of_class.planes.size()}, [&](std::byte* record) {
      change(region, record);
      Written next;
      next.chunk = region.chunk;
      for (std::size_t plane = 0; plane < of_class.planes.size(); ++plane)
        next.checksums[plane] = store::plane_checksum(record + layout.record.plane_offsets[plane],
                                                      layout.elements, of_class.planes[plane]);
      next.overflowed =
          engine::count_overflowed({layout, of_class, record, 0, layout.elements, layout.elements});
      SLUICE_ASSIGN_OR_RETURN(next.slot, find_target(region.chunk));
      const bool in_place = next.slot == chunk.current;
      overwriting = overwriting || in_place;
      return loop().call([&](Ticket& ticket) {
        running_->records->write(region.chunk, next.slot, record, [&, next, in_place](Status finished) {
          if (finished.ok())
            written.push_back(next);
          else if (!in_place)
            state_.store->release_slot(next.chunk, next.slot);
          loop().complete(ticket, std::move(finished));
        });
      });
    });
    if (!status.ok()) {
      // What was written over its own slot cannot be taken back.
      if (overwriting) status = stick(status.with_context("a write in place failed"));
      break;
    }
  }
  if (status.ok())
    for (const Region& region : regions)
      if (std::byte* record = state_.chunks[region.chunk].resident) {
        change(region, record);
        state_.chunks[region.chunk].changed = true;
        const store::ChunkLayout& layout = state_.chunk_layout(region.chunk);
        state_.chunks[region.chunk].overflowed = engine::count_overflowed(
            {layout, state_.class_of(region.chunk), record, 0, layout.elements, layout.elements});
      }
  const Status settled = loop().call([&](Ticket& ticket) {
    for (const Written& next : written) {
      Chunk& chunk = state_.chunks[next.chunk];
      const bool moved = next.slot != chunk.current;
      if (!status.ok() && moved) {
        state_.store->release_slot(next.chunk, next.slot);
        continue;
      }
      if (moved) state_.store->release_slot(next.chunk, *chunk.current);
      chunk.current = next.slot;
      chunk.checksums = next.checksums;
      chunk.overflowed = next.overflowed;
    }
    if (status.ok()) {
      running_->gather->invalidate(tensor);
      for (const Region& region : regions) running_->weights->invalidate(region.chunk);
      count_overflowed();
    }
    loop().complete(ticket, {});
  });
  return status.ok() ? settled : status;
}

}  // namespace sluice::engine
