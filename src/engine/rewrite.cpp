#include "engine/rewrite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "engine/record_values.hpp"
#include "store/element_values.hpp"
#include "store/value_reader.hpp"

namespace sluice::engine {
namespace {

using store::Plane;

/// Elements that are converted at once, whole granules.
constexpr std::uint64_t kPiece = 64 << 10;

bool of_weights(const store::PlaneFormat& format) {
  return format.plane == Plane::kWeight || format.plane == Plane::kResidual || format.plane == Plane::kMaster;
}

/// One run of a tensor's elements on its way from a store to a record.
class Copier {
 public:
  Copier(const State& state, const Source& source, std::uint32_t chunk, const store::Segment& segment,
         std::byte* record)
      : target_{state.chunk_layout(chunk),     state.class_of(chunk), record, segment.offset, segment.count,
                segment.offset + segment.count},
        range_{segment.first, segment.count},
        reader_(*source.reader),
        values_(reader_),
        parameter_(*source.parameters[segment.parameter]),
        stored_(reader_.parameters()[parameter_]),
        keeps_moments_(source.keeps_moments[segment.parameter]) {}

  Status run() {
    SLUICE_RETURN_IF_ERROR(copy_weights());
    if (!keeps_moments_) return {};
    SLUICE_RETURN_IF_ERROR(copy_moment(View::kMoment1, Plane::kMoment1));
    return copy_moment(View::kMoment2, Plane::kMoment2);
  }

 private:
  const std::vector<store::PlaneFormat>& wanted() const { return target_.of_class.planes; }

  Status copy_weights() {
    std::vector<store::PlaneFormat> kept, mine;
    std::ranges::copy_if(stored_.planes, std::back_inserter(kept), of_weights);
    std::ranges::copy_if(wanted(), std::back_inserter(mine), of_weights);
    // A frozen weight may be that plane of a stepped one as it is.
    const bool frozen = !target_.of_class.gradient && kept.front() == mine.front();
    if (kept != mine && !frozen) return convert_weights();
    for (const store::PlaneFormat& format : mine) SLUICE_RETURN_IF_ERROR(copy(format.plane));
    return {};
  }

  Status convert_weights() {
    if (!store::converts(stored_.planes.front().dtype) || !store::converts(wanted().front().dtype))
      return Status(Code::kInvalidArgument, fmt::format("'{}': {} cannot be made of the store's {}",
                                                        stored_.name, dtype_name(wanted().front().dtype),
                                                        dtype_name(stored_.planes.front().dtype)));
    const View view = target_.of_class.gradient ? View::kMaster : View::kWeight;
    return convert(
        view, [&](Range piece, float* values) { return values_.read_master(parameter_, piece, values); });
  }

  Status copy_moment(View view, Plane moment) {
    const auto kept = store::find_plane(stored_.planes, moment), mine = store::find_plane(wanted(), moment);
    if (!kept || !mine) return {};
    if (stored_.planes[*kept] != wanted()[*mine])
      return convert(view, [&](Range piece, float* values) {
        return values_.read_moment(parameter_, moment, piece, values);
      });
    SLUICE_RETURN_IF_ERROR(copy(moment));
    return store::is_coded(wanted()[*mine]) ? copy(store::scale_of(moment)) : Status();
  }

  /// A plane as it is.
  Status copy(Plane plane) {
    return reader_.read(parameter_, plane, range_, target_.at(*store::find_plane(wanted(), plane)));
  }

  template <class Read>
  Status convert(View view, const Read& read) {
    std::vector<float> values(std::min<std::uint64_t>(kPiece, range_.count));
    for (std::uint64_t done = 0; done < range_.count; done += kPiece) {
      const Range piece{range_.first + done, std::min<std::uint64_t>(kPiece, range_.count - done)};
      SLUICE_RETURN_IF_ERROR(read(piece, values.data()));
      RecordElements target = target_;
      target.offset += static_cast<std::uint32_t>(done);
      target.count = static_cast<std::uint32_t>(piece.count);
      write_values(target, view, reinterpret_cast<const std::byte*>(values.data()), DType::kF32);
    }
    return {};
  }

  const RecordElements target_;
  const Range range_;
  store::StoreReader& reader_;
  store::ValueReader values_;
  const std::uint32_t parameter_;
  const store::ReadableParameter& stored_;
  const bool keeps_moments_;
};

/// Whether what one rule has made of its moments and counts is what the other would have. Adam and AdamW differ in
/// what they do with weight decay alone.
bool share_moments(const Optimizer& a, const Optimizer& b) {
  const auto is_adam = [](const Optimizer& optimizer) {
    return std::holds_alternative<Adam>(optimizer) || std::holds_alternative<AdamW>(optimizer);
  };
  return a.index() == b.index() || (is_adam(a) && is_adam(b));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace

Result<Source> match(const Registry& registry, store::StoreReader& reader, const RecoveryOptions& allowed) {
  Source source{.reader = &reader, .parameters = {}, .keeps_moments = {}, .differences = {}};
  std::vector<std::string> refused;
  const auto note = [&](bool is_allowed, std::string text) {
    if (!is_allowed) refused.push_back(text);
    source.differences.push_back(std::move(text));
  };
  std::set<std::string> extra;
  for (const store::ReadableParameter& stored : reader.parameters()) extra.insert(stored.name);
  for (const Tensor& tensor : registry.tensors()) {
    const std::optional<std::uint32_t> found = reader.find(tensor.name);
    source.parameters.push_back(std::nullopt);
    source.keeps_moments.push_back(false);
    if (!found) {
      note(allowed.allow_missing, fmt::format("'{}' is not in the store", tensor.name));
      continue;
    }
    const store::ReadableParameter& stored = reader.parameters()[*found];
    extra.erase(stored.name);  // which may be known here by the name of an alias
    if (stored.shape != tensor.shape) {
      note(allowed.allow_mismatched, fmt::format("'{}' has shape {}, in the store {}", tensor.name,
                                                 shape_text(tensor.shape), shape_text(stored.shape)));
      continue;
    }
    source.parameters.back() = found;
    const Policy policy = registry.groups()[tensor.group].options.policy;
    const bool frozen = policy == Policy::kFrozen, was_frozen = stored.policy == Policy::kFrozen;
    if (stored.policy != policy)
      source.differences.push_back(fmt::format("'{}' has policy {}, in the store {}{}", tensor.name,
                                               policy_name(policy), policy_name(stored.policy),
                                               frozen       ? ": its moments and step count are not kept"
                                               : was_frozen ? ": its moments and step count start anew"
                                                            : ""));
    const Optimizer& optimizer = registry.groups()[tensor.group].options.optimizer;
    const OptimizerKind& kind = optimizer_kinds()[stored.optimizer];
    const bool stepped = !frozen && !was_frozen;
    source.keeps_moments.back() = stepped && share_moments(optimizer, kind.defaults);
    if (stepped && optimizer.index() != stored.optimizer)
      source.differences.push_back(fmt::format(
          "'{}' has optimizer {}, in the store {}: {}", tensor.name, kind_of(optimizer).name, kind.name,
          source.keeps_moments.back() ? "its moments and step count are kept"
                                      : "its moments and step count start anew"));
  }
  for (const std::string& name : extra)
    note(allowed.allow_extra, fmt::format("'{}' is in the store and was not registered", name));
  if (!refused.empty())
    return Status(Code::kInvalidArgument,
                  fmt::format("the store and what was registered do not share all parameters "
                              "(EngineOptions::recovery can allow it): {}",
                              fmt::join(refused, "; ")));
  return source;
}

Status copy_chunk(const State& state, const Source& source, std::uint32_t chunk, std::byte* record) {
  for (const store::Segment& segment : state.layout.segments_of(chunk))
    if (source.parameters[segment.parameter])
      SLUICE_RETURN_IF_ERROR(Copier(state, source, chunk, segment, record).run());
  return {};
}

}  // namespace sluice::engine
