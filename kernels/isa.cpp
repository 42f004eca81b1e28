#include "kernels/isa.hpp"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/isa.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace sluice::kernels {
namespace HWY_NAMESPACE {

std::int64_t TargetInUse() { return HWY_TARGET; }

}  // namespace HWY_NAMESPACE
}  // namespace sluice::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sluice::kernels {
namespace {

HWY_EXPORT(TargetInUse);

// Better targets are lower bits, and newer versions of Highway put more of them between these.
Isa isa_of(std::int64_t target) {
#if HWY_ARCH_X86
  if (target <= HWY_AVX3) return Isa::kAvx512;
  if (target <= HWY_AVX2) return Isa::kAvx2;
  if (target <= HWY_SSSE3) return Isa::kSse4;
#elif HWY_ARCH_ARM
  if (target < HWY_EMU128) return Isa::kNeon;
#endif
  return Isa::kScalar;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kSse4:
      return "sse4";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "unknown";
}

bool fuses_multiply_add(Isa isa) { return isa != Isa::kScalar && isa != Isa::kSse4; }

Isa isa_in_use() { return isa_of(HWY_DYNAMIC_DISPATCH(TargetInUse)()); }

std::vector<Isa> isas_available() {
  std::vector<Isa> isas;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (const Isa isa = isa_of(target); isas.empty() || isas.back() != isa) isas.push_back(isa);
  }
  return isas;
}

void force_isa_for_test(std::optional<Isa> isa) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t forced = 0;
  if (isa) {
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      if (isa_of(target) == *isa) forced |= target;
    }
  }
  hwy::SetSupportedTargetsForTest(forced);
}

}  // namespace sluice::kernels
#endif  // HWY_ONCE
