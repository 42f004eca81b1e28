#include "store/store_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sluice::store {
namespace {

/// All ranks of the store, each once, in order.
Result<std::vector<ExistingRank>> complete(std::vector<ExistingRank> ranks, std::uint64_t store_id) {
  std::erase_if(ranks, [&](const ExistingRank& one) { return one.store_id != store_id; });
  std::ranges::sort(ranks, {}, &ExistingRank::rank);
  std::uint32_t world = 1;
  for (const ExistingRank& one : ranks)
    if (one.superblock) world = std::max(world, one.superblock->world);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    if (rank >= ranks.size() || ranks[rank].rank != rank) {
      return Status(Code::kDataLoss,
                    fmt::format("{} is in none of the directories", describe_rank(store_id, rank, world)));
    }
    if (ranks[rank].superblock && ranks[rank].superblock->world != world) {
      return Status(Code::kDataLoss,
                    fmt::format("{} says it is of a world of {}", describe_rank(store_id, rank, world),
                                ranks[rank].superblock->world));
    }
  }
  if (ranks.size() > world) {
    return Status(Code::kDataLoss,
                  fmt::format("{} is there beside them", describe_rank(store_id, ranks[world].rank, world)));
  }
  return ranks;
}

Status check_steps(std::span<const RankImage> images) {
  const std::uint64_t steps = images[0].record().steps;
  for (const RankImage& image : images) {
    if (image.record().steps == steps) continue;
    return Status(Code::kDataLoss,
                  fmt::format("commit {}: rank 0 had finished {} steps, rank {} {}", image.record().number,
                              steps, image.superblock().rank, image.record().steps));
  }
  return {};
}

std::string describe(const ReadableParameter& parameter, Range range) {
  return fmt::format("parameter \"{}\", elements {} to {}", parameter.name, range.first,
                     range.first + range.count - 1);
}

}  // namespace

Result<std::unique_ptr<StoreReader>> StoreReader::open(std::vector<ExistingRank> ranks,
                                                       const ReaderOptions& options) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<ExistingRank> all, complete(std::move(ranks), options.store_id));
  std::vector<RankImage> images;
  images.reserve(all.size());
  for (ExistingRank& one : all) {
    SLUICE_ASSIGN_OR_RETURN(RankImage image, RankImage::open(std::move(one), options.commit));
    images.push_back(std::move(image));
  }
  SLUICE_RETURN_IF_ERROR(check_steps(images));
  SLUICE_ASSIGN_OR_RETURN(PlaneReader planes, PlaneReader::create());
  return std::unique_ptr<StoreReader>(
      new StoreReader(std::move(images), options.near_rank, std::move(planes)));
}

std::vector<ExistingRank> StoreReader::close(std::unique_ptr<StoreReader> reader) {
  std::vector<ExistingRank> ranks;
  for (RankImage& image : reader->images_) ranks.push_back(std::move(image).close());
  return ranks;
}

StoreReader::StoreReader(std::vector<RankImage> images, std::uint32_t near_rank, PlaneReader planes)
    : images_(std::move(images)),
      near_rank_(near_rank),
      table_(make_state_table(images_, near_rank)),
      planes_(std::move(planes)) {}

std::optional<std::uint32_t> StoreReader::find(const std::string& name) const {
  const auto found = table_.names.find(name);
  return found == table_.names.end() ? std::nullopt : std::optional(found->second);
}

Status StoreReader::read(std::uint32_t parameter, Plane plane, Range range, std::byte* target) {
  const ReadableParameter& readable = table_.parameters[parameter];
  if (range.first > readable.elements || range.count > readable.elements - range.first) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter \"{}\": {} elements from {} on, it has {}", readable.name,
                              range.count, range.first, readable.elements));
  }
  if (range.count == 0) return {};
  const auto format = std::ranges::find(readable.planes, plane, &PlaneFormat::plane);
  if (format == readable.planes.end()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter \"{}\" has no {}", readable.name, plane_name(plane)));
  }
  if (range.first % format->elements_per_value != 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("parameter \"{}\": {} from element {} on, it has one value for each {}",
                              readable.name, plane_name(plane), range.first, format->elements_per_value));
  }
  const auto index = static_cast<std::size_t>(format - readable.planes.begin());
  const std::vector<std::uint32_t>& rank_by_shard = table_.holders[parameter].rank_by_shard;
  if (rank_by_shard.empty()) {
    SLUICE_RETURN_IF_ERROR(check_near(parameter, range));
    return read_part(near_rank_, parameter, index, range, target);
  }
  const std::uint64_t shard =
      shard_elements(readable.elements, static_cast<std::uint32_t>(rank_by_shard.size()));
  for (std::uint64_t done = 0; done < range.count;) {
    const std::uint64_t at = range.first + done;
    const std::uint64_t count = std::min(range.count - done, shard - at % shard);
    SLUICE_RETURN_IF_ERROR(read_part(rank_by_shard[at / shard], parameter, index, {at, count}, target));
    target += format->bytes(count);
    done += count;
  }
  return {};
}

Status StoreReader::check_near(std::uint32_t parameter, Range range) const {
  const std::vector<std::uint32_t>& index_by_rank = table_.holders[parameter].index_by_rank;
  const std::uint32_t index = near_rank_ < images_.size() ? index_by_rank[near_rank_] : Holders::kNone;
  const Range shard = index == Holders::kNone ? Range{} : images_[near_rank_].shard_of(index);
  if (range.first >= shard.first && range.first + range.count <= shard.first + shard.count) return {};
  return Status(
      Code::kFailedPrecondition,
      fmt::format(
          "{}: ranks with communicators of their own may hold them differently, rank {} holds {} from {} "
          "on",
          describe(table_.parameters[parameter], range), near_rank_, shard.count, shard.first));
}

Status StoreReader::read_part(std::uint32_t rank, std::uint32_t parameter, std::size_t plane, Range range,
                              std::byte* target) {
  const RankImage& image = images_[rank];
  const std::span<const Segment> segments = image.layout().segments();
  const std::span<const Piece> pieces =
      image.layout().pieces_of(table_.holders[parameter].index_by_rank[rank]);
  auto piece = std::ranges::upper_bound(pieces, range.first, {},
                                        [&](const Piece& one) { return segments[one.segment].first; });
  --piece;  // the last that begins at or before the range, which lies in the rank's shard
  for (std::uint64_t done = 0; done < range.count; ++piece) {
    const Segment& segment = segments[piece->segment];
    const StoredPlane stored = image.plane_of(piece->chunk, plane);
    const auto skipped = static_cast<std::uint32_t>(range.first + done - segment.first);
    const auto count =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(segment.count - skipped, range.count - done));
    const Status status = planes_.read(stored, segment.offset + skipped, count, target);
    if (!status.ok()) {
      const ReadableParameter& readable = table_.parameters[parameter];
      return status.with_context(fmt::format("{}, {}, of rank {} chunk {}",
                                             describe(readable, {segment.first + skipped, count}),
                                             plane_name(readable.planes[plane].plane), rank, piece->chunk));
    }
    target += stored.format.bytes(count);
    done += count;
  }
  return {};
}

Status StoreReader::verify(const std::function<void(const BadPlane&)>& bad,
                           const std::function<Status(std::uint64_t)>& progress) {
  std::uint64_t done = 0;
  for (std::uint32_t rank = 0; rank < images_.size(); ++rank) {
    const RankImage& image = images_[rank];
    for (std::uint32_t chunk = 0; chunk < image.layout().chunks().size(); ++chunk) {
      const std::vector<PlaneFormat>& formats = image.class_of(chunk).planes;
      for (std::size_t plane = 0; plane < formats.size(); ++plane) {
        const StoredPlane stored = image.plane_of(chunk, plane);
        std::uint64_t heard = 0;
        Status ended;
        const Status status = planes_.verify(stored, [&](std::uint64_t bytes) {
          heard += bytes;
          return ended = progress(done + heard);
        });
        SLUICE_RETURN_IF_ERROR(ended);
        done += stored.bytes();
        if (status.ok()) continue;
        for (const Segment& segment : image.layout().segments_of(chunk)) {
          bad({.parameter = image.catalog().parameters[segment.parameter].name,
               .range = {segment.first, segment.count},
               .plane = formats[plane].plane,
               .rank = rank,
               .chunk = chunk,
               .drive = stored.file->path(),
               .status = status});
        }
        if (heard < stored.bytes()) SLUICE_RETURN_IF_ERROR(progress(done));
      }
    }
  }
  return {};
}

std::uint64_t StoreReader::state_bytes() const {
  std::uint64_t bytes = 0;
  for (const RankImage& image : images_) {
    for (std::uint32_t chunk = 0; chunk < image.layout().chunks().size(); ++chunk)
      for (std::size_t plane = 0; plane < image.class_of(chunk).planes.size(); ++plane)
        bytes += image.plane_of(chunk, plane).bytes();
  }
  return bytes;
}

}  // namespace sluice::store
