#include "sluice/types.hpp"

namespace sluice {

std::uint32_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
    case DType::kI8: return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16: return 2;
    case DType::kU32:
    case DType::kI32:
    case DType::kF32: return 4;
    case DType::kU64:
    case DType::kI64:
    case DType::kF64: return 8;
  }
  return 0;
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kBool: return "BOOL";
    case DType::kU8: return "U8";
    case DType::kI8: return "I8";
    case DType::kU16: return "U16";
    case DType::kI16: return "I16";
    case DType::kF16: return "F16";
    case DType::kBF16: return "BF16";
    case DType::kU32: return "U32";
    case DType::kI32: return "I32";
    case DType::kF32: return "F32";
    case DType::kU64: return "U64";
    case DType::kI64: return "I64";
    case DType::kF64: return "F64";
  }
  return "?";
}

std::string_view policy_name(Policy policy) {
  switch (policy) {
    case Policy::kBf16Split: return "bf16_split";
    case Policy::kFp32: return "fp32";
    case Policy::kFrozen: return "frozen";
  }
  return "?";
}

}  // namespace sluice
