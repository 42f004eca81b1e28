#include "engine/update.hpp"

#include <algorithm>
#include <utility>

#include "store/checksum.hpp"

namespace sluice::engine {
namespace {

using Digests = std::array<std::uint64_t, kMaxPlanes>;

/// What a policy's update needs to know of its kernel: its planes in a record, and how they are hashed.
struct Bf16Split {
  using Planes = kernels::Bf16SplitPlanes;
  using Hashers = kernels::Bf16SplitHashers;
  using Hashing = kernels::Bf16SplitHashing;

  static Planes planes(std::byte* record, const std::vector<std::uint64_t>& offsets) {
    return {reinterpret_cast<std::uint16_t*>(record + offsets[0]),
            reinterpret_cast<std::int16_t*>(record + offsets[1]),
            reinterpret_cast<float*>(record + offsets[2]), reinterpret_cast<float*>(record + offsets[3])};
  }
  static void hash(Hashers& hashers, const Planes& planes, std::size_t elements) {
    hashers.weight.update(planes.weight, elements * sizeof *planes.weight);
    hashers.residual.update(planes.residual, elements * sizeof *planes.residual);
    hashers.moment1.update(planes.moment1, elements * sizeof *planes.moment1);
    hashers.moment2.update(planes.moment2, elements * sizeof *planes.moment2);
  }
  static Digests digests(const Hashers& hashers) {
    return {hashers.weight.digest(), hashers.residual.digest(), hashers.moment1.digest(),
            hashers.moment2.digest()};
  }
  static std::uint64_t update(const Planes& planes, const void* gradient, kernels::GradientPlane plane,
                              std::size_t elements, const kernels::AdamWFactors& factors,
                              const Hashing& hashing) {
    return kernels::adamw_bf16_split(planes, gradient, plane, elements, factors, hashing);
  }
};

struct Fp32 {
  using Planes = kernels::Fp32Planes;
  using Hashers = kernels::Fp32Hashers;
  using Hashing = kernels::Fp32Hashing;

  static Planes planes(std::byte* record, const std::vector<std::uint64_t>& offsets) {
    return {reinterpret_cast<float*>(record + offsets[0]), reinterpret_cast<float*>(record + offsets[1]),
            reinterpret_cast<float*>(record + offsets[2])};
  }
  static void hash(Hashers& hashers, const Planes& planes, std::size_t elements) {
    hashers.weight.update(planes.weight, elements * sizeof *planes.weight);
    hashers.moment1.update(planes.moment1, elements * sizeof *planes.moment1);
    hashers.moment2.update(planes.moment2, elements * sizeof *planes.moment2);
  }
  static Digests digests(const Hashers& hashers) {
    return {hashers.weight.digest(), hashers.moment1.digest(), hashers.moment2.digest()};
  }
  static std::uint64_t update(const Planes& planes, const void* gradient, kernels::GradientPlane plane,
                              std::size_t elements, const kernels::AdamWFactors& factors,
                              const Hashing& hashing) {
    kernels::adamw_fp32(planes, gradient, plane, elements, factors, hashing);
    return 0;
  }
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
    if (class_.policy == Policy::kBf16Split)
      run_as<Bf16Split>(tile);
    else
      run_as<Fp32>(tile);
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
  /// Goes through a tile in order of elements: what has factors is updated, the rest stays, and all of it is hashed as it was
  /// and as it is.
  template <class Kernel>
  void run_as(std::uint32_t tile) {
    const store::TileExtent extent = store::tile_extent(chunk_.elements, tile);
    const std::size_t last = std::size_t{extent.first} + extent.count;
    const typename Kernel::Planes planes = Kernel::planes(job_.record, chunk_.record.plane_offsets);
    const auto gradient_plane =
        *class_.gradient == DType::kBF16 ? kernels::GradientPlane::kBF16 : kernels::GradientPlane::kF32;
    const bool hashed = job_.checksums == Checksums::kVerifyAndRenew;
    typename Kernel::Hashers read, written;
    std::size_t position = extent.first;
    const auto keep_until = [&](std::size_t end) {
      if (hashed && position < end) {
        Kernel::hash(read, kernels::planes_from(planes, position), end - position);
        Kernel::hash(written, kernels::planes_from(planes, position), end - position);
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
      if (!factors || begin >= end) continue;
      keep_until(begin);
      typename Kernel::Hashing hashing;
      if (hashed) hashing = {&read, &written};
      overflowed_[tile] += Kernel::update(
          kernels::planes_from(planes, begin), job_.gradient + begin * dtype_bytes(*class_.gradient),
          gradient_plane, end - begin, std::get<kernels::AdamWFactors>(*factors), hashing);
      position = end;
    }
    keep_until(last);
    if (!hashed) return;
    const Digests before = Kernel::digests(read), after = Kernel::digests(written);
    for (std::size_t plane = 0; plane < class_.planes.size(); ++plane) {
      before_[plane * tiles_ + tile] = before[plane];
      after_[plane * tiles_ + tile] = after[plane];
    }
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
  return kernels::adamw_factors(std::get<AdamW>(optimizer), step_count, gradient_factor);
}

void update_chunk(const State& state, const UpdateJob& job, std::function<void(const UpdateResult&)> done) {
  state.compute->submit(*new UpdateTask(state, job, std::move(done)));
}

}  // namespace sluice::engine
