#include "engine/rewrite.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "engine/element_values.hpp"
#include "kernels/convert.hpp"

namespace sluice::engine {
namespace {

/// Elements that are converted at once.
constexpr std::uint64_t kPiece = 64 << 10;

/// One run of a tensor's elements on its way from a store to a record.
class Copier {
 public:
  Copier(const State& state, const Source& source, std::uint32_t chunk, const store::Segment& segment,
         std::byte* record)
      : of_class_(state.class_of(chunk)),
        layout_(state.chunk_layout(chunk)),
        segment_(segment),
        record_(record),
        reader_(*source.reader),
        parameter_(*source.parameters[segment.parameter]),
        stored_(reader_.parameters()[parameter_]) {}

  Status run() {
    const bool same_weights = stored_.planes.front() == of_class_.planes.front() &&
                              has(store::Plane::kResidual) == wants(store::Plane::kResidual);
    // A frozen bf16 weight is the bf16 plane of a split one.
    const bool frozen_of_split =
        !wants(store::Plane::kResidual) && stored_.planes.front() == of_class_.planes.front();
    if (same_weights || frozen_of_split) {
      SLUICE_RETURN_IF_ERROR(copy(store::Plane::kWeight));
      if (same_weights && wants(store::Plane::kResidual))
        SLUICE_RETURN_IF_ERROR(copy(store::Plane::kResidual));
    } else {
      SLUICE_RETURN_IF_ERROR(convert_weights());
    }
    for (store::Plane moment : {store::Plane::kMoment1, store::Plane::kMoment2})
      if (wants(moment) && has(moment)) SLUICE_RETURN_IF_ERROR(copy(moment));
    return {};
  }

 private:
  const store::PlaneFormat* find(store::Plane plane) const {
    const auto found = std::ranges::find(stored_.planes, plane, &store::PlaneFormat::plane);
    return found == stored_.planes.end() ? nullptr : &*found;
  }
  bool has(store::Plane plane) const { return find(plane) != nullptr; }
  bool wants(store::Plane plane) const { return find_plane(of_class_, plane).has_value(); }

  std::byte* target(store::Plane plane, std::uint64_t done = 0) const {
    const std::size_t index = *find_plane(of_class_, plane);
    return record_ + layout_.record.plane_offsets[index] +
           (segment_.offset + done) * dtype_bytes(of_class_.planes[index].dtype);
  }
  Status copy(store::Plane plane) {
    return reader_.read(parameter_, plane, {segment_.first, segment_.count}, target(plane));
  }

  Status convert_weights() {
    const DType from = stored_.planes.front().dtype, to = of_class_.planes.front().dtype;
    if (!converts(from) || !converts(to))
      return Status(Code::kInvalidArgument, fmt::format("'{}': {} cannot be made of the store's {}",
                                                        stored_.name, dtype_name(to), dtype_name(from)));
    std::vector<std::byte> weights(kPiece * dtype_bytes(from));
    std::vector<std::int16_t> residuals(has(store::Plane::kResidual) ? kPiece : 0);
    std::vector<float> masters(kPiece);
    for (std::uint64_t done = 0; done < segment_.count; done += kPiece) {
      const Range range{segment_.first + done, std::min<std::uint64_t>(kPiece, segment_.count - done)};
      SLUICE_RETURN_IF_ERROR(reader_.read(parameter_, store::Plane::kWeight, range, weights.data()));
      if (residuals.empty()) {
        to_f32(masters.data(), weights.data(), from, range.count);
      } else {
        SLUICE_RETURN_IF_ERROR(reader_.read(parameter_, store::Plane::kResidual, range,
                                            reinterpret_cast<std::byte*>(residuals.data())));
        kernels::join_bf16_split(masters.data(), reinterpret_cast<const std::uint16_t*>(weights.data()),
                                 residuals.data(), range.count);
      }
      if (wants(store::Plane::kResidual))
        kernels::split_bf16(reinterpret_cast<std::uint16_t*>(target(store::Plane::kWeight, done)),
                            reinterpret_cast<std::int16_t*>(target(store::Plane::kResidual, done)),
                            masters.data(), range.count);
      else
        from_f32(target(store::Plane::kWeight, done), to, masters.data(), range.count);
    }
    return {};
  }

  const store::ClassLayout& of_class_;
  const store::ChunkLayout& layout_;
  const store::Segment& segment_;
  std::byte* const record_;
  store::StoreReader& reader_;
  const std::uint32_t parameter_;
  const store::ReadableParameter& stored_;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

}  // namespace

Result<Source> match(const Registry& registry, store::StoreReader& reader, const RecoveryOptions& allowed) {
  Source source{.reader = &reader, .parameters = {}, .differences = {}};
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
    if (stored.policy != policy)
      source.differences.push_back(fmt::format("'{}' has policy {}, in the store {}", tensor.name,
                                               policy_name(policy), policy_name(stored.policy)));
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
