#include "trainer/fingerprint.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice::trainer {
namespace {

constexpr std::uint64_t kPieceElements = 16384;
constexpr std::uint64_t kScaledElements = 256;

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  void add(const void* data, std::size_t bytes) { XXH3_64bits_update(&state_, data, bytes); }
  std::uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

// Calls work(range) for the pieces of a parameter, in order.
template <class Work>
Status for_each_piece(std::uint64_t elements, const Work& work) {
  for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
    SLUICE_RETURN_IF_ERROR(work(Range{first, std::min(kPieceElements, elements - first)}));
  }
  return {};
}

// Reads one parameter plane by plane.
class PlaneReader {
 public:
  PlaneReader(const Engine& engine, const NamedParameter& parameter)
      : engine_(engine), parameter_(parameter) {}

  Status add(View view, DType dtype, std::initializer_list<Hash*> hashes) {
    return for_each_piece(parameter_.elements, [&](Range range) -> Status {
      SLUICE_RETURN_IF_ERROR(engine_.read(parameter_.id, view, range, words_.data(), dtype));
      for (Hash* hash : hashes) hash->add(words_.data(), range.count * dtype_bytes(dtype));
      return {};
    });
  }

  // What rounding took from the master: its bits less those of the weight, as int16.
  Status add_residual(Hash& hash) {
    return for_each_piece(parameter_.elements, [&](Range range) -> Status {
      SLUICE_RETURN_IF_ERROR(engine_.read(parameter_.id, View::kMaster, range, words_.data(), DType::kF32));
      SLUICE_RETURN_IF_ERROR(engine_.read(parameter_.id, View::kWeight, range, halves_.data(), DType::kBF16));
      for (std::uint64_t i = 0; i < range.count; ++i) {
        const std::uint32_t weight = static_cast<std::uint32_t>(halves_[i]) << 16;
        halves_[i] = static_cast<std::uint16_t>(words_[i] - weight);
      }
      hash.add(halves_.data(), range.count * sizeof(std::uint16_t));
      return {};
    });
  }

  // One for each kScaledElements.
  Status add_scales(View view, Hash& hash) {
    return for_each_piece(parameter_.elements, [&](Range range) -> Status {
      SLUICE_RETURN_IF_ERROR(engine_.read(parameter_.id, view, range, words_.data(), DType::kF32));
      hash.add(words_.data(), (range.count + kScaledElements - 1) / kScaledElements * sizeof(float));
      return {};
    });
  }

  Status add_count(Hash& hash) {
    std::uint64_t count = 0;
    SLUICE_RETURN_IF_ERROR(engine_.read(parameter_.id, View::kCount, Range{0, 1}, &count, DType::kU64));
    hash.add(&count, sizeof(count));
    return {};
  }

 private:
  const Engine& engine_;
  const NamedParameter& parameter_;
  std::vector<std::uint32_t> words_ = std::vector<std::uint32_t>(kPieceElements);
  std::vector<std::uint16_t> halves_ = std::vector<std::uint16_t>(kPieceElements);
};

struct WeightFormat {
  DType dtype = DType::kBF16;
  bool has_residual = false;
  bool has_master = false;
};

WeightFormat weight_format(Policy policy) {
  if (policy == Policy::kFp32) return {.dtype = DType::kF32};
  if (policy == Policy::kFp16Master) return {.dtype = DType::kF16, .has_master = true};
  return {.dtype = DType::kBF16, .has_residual = true};
}

DType moment_dtype(Policy policy) {
  return policy == Policy::kBf16Moments ? DType::kBF16
         : policy == Policy::kMoments8  ? DType::kU8
                                        : DType::kF32;
}

}  // namespace

Result<Fingerprint> fingerprint(const Engine& engine, const Registry& registry) {
  static_assert(std::endian::native == std::endian::little);
  std::vector<NamedParameter> parameters = registry.named();
  std::ranges::sort(parameters, {}, &NamedParameter::name);
  const Policy policy = registry.policy();
  const Moments moments = kind_of(registry.optimizer()).moments;
  const bool first = has_first(moments), second = has_second(moments);
  const bool scaled = policy == Policy::kMoments8;
  const WeightFormat weight = weight_format(policy);
  Hash weights, state;
  for (const NamedParameter& parameter : parameters) {
    PlaneReader reader(engine, parameter);
    for (Hash* hash : {&weights, &state}) hash->add(parameter.name.data(), parameter.name.size());
    SLUICE_RETURN_IF_ERROR(reader.add(View::kWeight, weight.dtype, {&weights, &state}));
    if (weight.has_residual) SLUICE_RETURN_IF_ERROR(reader.add_residual(state));
    if (weight.has_master) SLUICE_RETURN_IF_ERROR(reader.add(View::kMaster, DType::kF32, {&state}));
    if (first) SLUICE_RETURN_IF_ERROR(reader.add(View::kMoment1, moment_dtype(policy), {&state}));
    if (second) SLUICE_RETURN_IF_ERROR(reader.add(View::kMoment2, moment_dtype(policy), {&state}));
    if (first && scaled) SLUICE_RETURN_IF_ERROR(reader.add_scales(View::kScale1, state));
    if (second && scaled) SLUICE_RETURN_IF_ERROR(reader.add_scales(View::kScale2, state));
    SLUICE_RETURN_IF_ERROR(reader.add_count(state));
  }
  return Fingerprint{weights.value(), state.value()};
}

}  // namespace sluice::trainer
