#include "engine/update.hpp"

#include <algorithm>
#include <utility>

#include "kernels/tile_hash.hpp"
#include "store/checksum.hpp"

namespace sluice::engine {
namespace {

/// Elements [first, last) of a chunk.
struct Span {
  std::size_t first = 0;
  std::size_t last = 0;
};

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
    if (job.checksums == Checksums::kNone) return;
    before_.resize(class_.planes.size() * tiles_);
    after_.resize(class_.planes.size() * tiles_);
  }

  std::uint32_t tiles() const override { return static_cast<std::uint32_t>(tiles_); }

  void run(std::uint32_t tile) override {
    const store::TileExtent extent = store::tile_extent(chunk_.elements, tile);
    const Span span{extent.first, std::size_t{extent.first} + extent.count};
    if (!before_.empty()) hash(before_, tile, span);
    const std::span<const store::Segment> segments = state_.layout.segments_of(job_.chunk);
    auto segment = std::ranges::upper_bound(segments, span.first, {}, &store::Segment::offset);
    if (segment != segments.begin()) --segment;
    for (; segment != segments.end() && segment->offset < span.last; ++segment) {
      const std::optional<Factors>& factors = (*job_.factors)[segment->parameter];
      const Span part{std::max<std::size_t>(span.first, segment->offset),
                      std::min<std::size_t>(span.last, std::size_t{segment->offset} + segment->count)};
      if (factors && part.first < part.last) overflowed_[tile] += update(part, *factors);
    }
    if (!after_.empty()) hash(after_, tile, span);
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
  /// Where element `first` of a plane is.
  template <class T>
  T* at(std::size_t plane, std::size_t first) const {
    return reinterpret_cast<T*>(job_.record + chunk_.record.plane_offsets[plane]) + first;
  }

  void hash(std::vector<std::uint64_t>& hashes, std::uint32_t tile, Span span) const {
    for (std::size_t plane = 0; plane < class_.planes.size(); ++plane) {
      const std::size_t element_bytes = dtype_bytes(class_.planes[plane].dtype);
      hashes[plane * tiles_ + tile] = kernels::hash_bytes(at<std::byte>(plane, span.first * element_bytes),
                                                          (span.last - span.first) * element_bytes);
    }
  }

  std::uint64_t update(Span part, const Factors& factors) const {
    const bool bf16 = *class_.gradient == DType::kBF16;
    const std::byte* gradient = job_.gradient + part.first * dtype_bytes(*class_.gradient);
    const auto plane = bf16 ? kernels::GradientPlane::kBF16 : kernels::GradientPlane::kF32;
    const std::size_t count = part.last - part.first;
    const auto& adamw = std::get<kernels::AdamWFactors>(factors);
    if (class_.policy == Policy::kBf16Split) {
      const kernels::Bf16SplitPlanes planes{at<std::uint16_t>(0, part.first), at<std::int16_t>(1, part.first),
                                            at<float>(2, part.first), at<float>(3, part.first)};
      return kernels::adamw_bf16_split(planes, gradient, plane, count, adamw);
    }
    const kernels::Fp32Planes planes{at<float>(0, part.first), at<float>(1, part.first),
                                     at<float>(2, part.first)};
    kernels::adamw_fp32(planes, gradient, plane, count, adamw);
    return 0;
  }

  const State& state_;
  const UpdateJob job_;
  std::function<void(const UpdateResult&)> done_;
  const store::ChunkLayout& chunk_;
  const store::ClassLayout& class_;
  const std::size_t tiles_;
  std::vector<std::uint64_t> before_, after_;  // [plane][tile]
  std::vector<std::uint64_t> overflowed_;      // [tile]
  UpdateResult result_;
};

}  // namespace

Factors make_factors(const Optimizer& optimizer, std::uint64_t step_count, double gradient_factor) {
  const auto& rule = std::get<AdamW>(optimizer);
  return kernels::adamw_factors({.lr = rule.lr,
                                 .beta1 = rule.beta1,
                                 .beta2 = rule.beta2,
                                 .eps = rule.eps,
                                 .weight_decay = rule.weight_decay},
                                step_count, gradient_factor);
}

void update_chunk(const State& state, const UpdateJob& job, std::function<void(const UpdateResult&)> done) {
  state.compute->submit(*new UpdateTask(state, job, std::move(done)));
}

}  // namespace sluice::engine
