#include "sluice/types.hpp"

#include <array>

namespace sluice {

std::uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU32:
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kU64:
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return "BOOL";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kU16:
      return "U16";
    case DType::kI16:
      return "I16";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kU32:
      return "U32";
    case DType::kI32:
      return "I32";
    case DType::kF32:
      return "F32";
    case DType::kU64:
      return "U64";
    case DType::kI64:
      return "I64";
    case DType::kF64:
      return "F64";
  }
  return "?";
}

std::span<const Policy> policies() {
  static constexpr std::array kPolicies{Policy::kBf16Split,   Policy::kFp32,     Policy::kFp16Master,
                                        Policy::kBf16Moments, Policy::kMoments8, Policy::kFrozen};
  return kPolicies;
}

std::string_view policy_name(Policy policy) {
  switch (policy) {
    case Policy::kBf16Split:
      return "bf16_split";
    case Policy::kFp32:
      return "fp32";
    case Policy::kFrozen:
      return "frozen";
    case Policy::kFp16Master:
      return "fp16_master";
    case Policy::kBf16Moments:
      return "bf16_moments";
    case Policy::kMoments8:
      return "moments8";
  }
  return "?";
}

std::optional<Policy> find_policy(std::string_view name) {
  for (const Policy policy : policies())
    if (policy_name(policy) == name) return policy;
  return std::nullopt;
}

}  // namespace sluice
