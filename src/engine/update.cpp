#include "engine/update.hpp"

#include <algorithm>
#include <utility>

#include "engine/record_values.hpp"
#include "store/checksum.hpp"

namespace sluice::engine {
namespace {

class UpdateTask final : public ComputeTask {
 public:
  UpdateTask(const State& state, const UpdateJob& job, std::function<void(const UpdateResult&)> done)
      : state_(state),
        job_(job),
        done_(std::move(done)),
        chunk_(state.chunk_layout(job.chunk)),
        class_(state.class_of(job.chunk)),
        tiles_(store::tile_count(chunk_.elements)),
        overflowed_(tiles_) {
    for (std::size_t plane = 0; plane < class_.planes.size(); ++plane)
      kernels::at(planes_, class_.planes[plane].plane) = job.record + chunk_.record.plane_offsets[plane];
    if (job.checksums == Checksums::kNone) return;
    before_.resize(class_.planes.size() * tiles_);
    after_.resize(class_.planes.size() * tiles_);
  }

  std::uint32_t tiles() const override { return static_cast<std::uint32_t>(tiles_); }

  /// A fetch or a gradient that waits for arithmetic goes first; a step waits for updates alone.
  bool in_background() const override { return true; }

  /// Goes through a tile in order of elements: what has factors is updated, the rest stays, and all of it is hashed as it was
  /// and as it is.
  void run(std::uint32_t tile) override {
    const store::TileExtent extent = store::tile_extent(chunk_.elements, tile);
    const std::size_t last = std::size_t{extent.first} + extent.count;
    const bool hashed = job_.checksums == Checksums::kVerifyAndRenew;
    kernels::PlaneHashers read, written;
    std::size_t position = extent.first;
    const auto keep_until = [&](std::size_t end) {
      if (hashed && position < end) {
        const kernels::Elements kept{position, end - position};
        kernels::hash_planes(read, class_.planes, planes_, kept);
        kernels::hash_planes(written, class_.planes, planes_, kept);
      }
      position = end;
    };

    const std::span<const store::Segment> segments = state_.layout.segments_of(job_.chunk);
    auto segment = std::ranges::upper_bound(segments, extent.first, {}, &store::Segment::offset);
    if (segment != segments.begin()) --segment;
    for (; segment != segments.end() && segment->offset < last; ++segment) {
      const std::optional<Factors>& factors = (*job_.factors)[segment->parameter];
      const std::size_t begin = std::max<std::size_t>(position, segment->offset);
      const std::size_t end = std::min<std::size_t>(last, std::size_t{segment->offset} + segment->count);
      if (begin >= end) continue;
      if (!factors) {  // its masters still overflow, or do not
        overflowed_[tile] +=
            count_overflowed({chunk_, class_, job_.record, static_cast<std::uint32_t>(begin),
                              static_cast<std::uint32_t>(end - begin), static_cast<std::uint32_t>(end)});
        continue;
      }
      keep_until(begin);
      kernels::Hashing hashing;
      if (hashed) hashing = {&read, &written};
      overflowed_[tile] += kernels::update(
          run_of({begin, end - begin}), factors->rule,
          {.key = factors->dither_key, .first_element = segment->first + (begin - segment->offset)}, hashing);
      position = end;
    }
    keep_until(last);
    if (!hashed) return;
    for (std::size_t plane = 0; plane < class_.planes.size(); ++plane) {
      const auto kind = static_cast<std::size_t>(class_.planes[plane].plane);
      before_[plane * tiles_ + tile] = read[kind].digest();
      after_[plane * tiles_ + tile] = written[kind].digest();
    }
  }

  void finish() override {
    for (std::uint64_t count : overflowed_) result_.overflowed += count;
    if (job_.checksums == Checksums::kNone) return;
    const auto& expected = state_.chunks[job_.chunk].checksums;
    for (std::size_t plane = 0; plane < class_.planes.size(); ++plane) {
      result_.verified =
          result_.verified && store::combine_tiles({&before_[plane * tiles_], tiles_}) == expected[plane];
      result_.checksums[plane] = store::combine_tiles({&after_[plane * tiles_], tiles_});
    }
  }

  void done() override {
    const auto done = std::move(done_);
    const UpdateResult result = result_;
    delete this;
    done(result);
  }

 private:
  kernels::Run run_of(const kernels::Elements& elements) const {
    return {.policy = class_.policy,
            .planes = kernels::planes_from(planes_, class_.planes, elements.first),
            .gradient = job_.gradient + elements.first * dtype_bytes(*class_.gradient),
            .gradient_plane = *class_.gradient == DType::kBF16 ? kernels::GradientPlane::kBF16
                                                               : kernels::GradientPlane::kF32,
            .elements = elements.count};
  }

  const State& state_;
  const UpdateJob job_;
  std::function<void(const UpdateResult&)> done_;
  const store::ChunkLayout& chunk_;
  const store::ClassLayout& class_;
  const std::size_t tiles_;
  kernels::PlanePointers planes_{};            // of the record, from its first element on
  std::vector<std::uint64_t> before_, after_;  // [plane][tile]
  std::vector<std::uint64_t> overflowed_;      // [tile]
  UpdateResult result_;
};

}  // namespace

Factors make_factors(const State& state, std::uint32_t tensor, double gradient_factor) {
  const Tensor& stepped = state.registry.tensors()[tensor];
  const std::uint64_t step_count = stepped.step_count + 1;
  return {
      kernels::make_factors(state.registry.group_of(tensor).options.optimizer, step_count, gradient_factor),
      kernels::dither_key(state.seed, stepped.name, step_count)};
}

void update_chunk(const State& state, const UpdateJob& job, std::function<void(const UpdateResult&)> done) {
  state.compute->submit(*new UpdateTask(state, job, std::move(done)));
}

}  // namespace sluice::engine
