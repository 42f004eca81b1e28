#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "sluice/export.hpp"

namespace sluice {

/// A parameter of one engine, in order of registration. Valid for that engine alone.
struct ParameterId {
  std::uint32_t index = 0;
  friend bool operator==(ParameterId, ParameterId) = default;
};

/// A group of one engine, in order of registration.
struct GroupId {
  std::uint32_t index = 0;
  friend bool operator==(GroupId, GroupId) = default;
};

/// A queue of device work, for example a cudaStream_t. Null: the call returns when the data is usable.
struct Stream {
  void* native = nullptr;
};

/// Elements [first, first + count) of a whole parameter, counted in row-major order over all ranks' shards.
struct Range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

/// Element types, named as safetensors names them; little-endian.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kU16,
  kI16,
  kF16,
  kBF16,
  kU32,
  kI32,
  kF32,
  kU64,
  kI64,
  kF64
};

SLUICE_API std::uint32_t dtype_bytes(DType dtype);
/// "BF16", "F32" …
SLUICE_API std::string_view dtype_name(DType dtype);

/// What is kept for each element of a group's parameters, in bytes on NVMe where the optimizer has both moments. Stores
/// keep these numbers: new ones are appended.
enum class Policy : std::uint8_t {
  kBf16Split,  ///< bf16 weight and a 16-bit residual (together the fp32 master, losslessly), fp32 moments: 12
  kFp32,       ///< fp32 weight and moments: 12
  kFrozen,     ///< a weight of GroupOptions::frozen_dtype, no optimizer state
  kFp16Master,   ///< fp16 weight, fp32 master and moments: 14; for training with a loss scale
  kBf16Moments,  ///< as kBf16Split, but bf16 moments, rounded stochastically: 8
  kMoments8,  ///< as kBf16Split, but 8-bit moments with an fp32 scale each for every 256 elements: 6 and 1/32
};
/// All of them, in the order in which they are told to people.
SLUICE_API std::span<const Policy> policies();
/// "bf16_split", "fp32", "fp16_master", "bf16_moments", "moments8", "frozen".
SLUICE_API std::string_view policy_name(Policy policy);
/// None for a name that no policy has.
SLUICE_API std::optional<Policy> find_policy(std::string_view name);

/// How a group's gradients are kept until the step; chosen by the trainer, never by the budget.
enum class GradientStorage : std::uint8_t {
  kFp32,      ///< any number of contributions, added in fp32
  kBf16Once,  ///< one contribution a rank and step, rounded once to nearest even
};

/// What a step does when a gradient is infinite or NaN.
enum class NonFinite : std::uint8_t {
  kSkipStep,  ///< nothing changes on any rank, the gradients are dropped, StepResult::skipped is set
  kIgnore,    ///< the update is computed from the gradients as they are
};

/// Whether a failed or skipped step leaves the state before it untouched, at the price of one more slot a chunk.
enum class Undo : std::uint8_t { kOn, kOff };

/// Where a parameter's gathered weights live between uses.
enum class Residency : std::uint8_t {
  kPlanned,  ///< fetched and evicted as planned
  kDevice,   ///< gathered in device memory all the time; refreshed after each step
};

/// What Engine::read and Engine::write look at.
enum class View : std::uint8_t {
  kWeight,   ///< the compute weights; what is written becomes the master too
  kMaster,   ///< the fp32 value that the optimizer updates; what is written is rounded to the weight too
  kMoment1,  ///< first moment, of rules that keep one
  kMoment2,  ///< second moment, likewise
  kCount,    ///< the parameter's step count: one u64 (DType::kU64), Range{0, 1}
  kScale1,  ///< of moment1 in 8 bits, to read alone: one F32 for each 256 elements, the range from such a one on
  kScale2,  ///< of moment2
};

/// The most commits that a store keeps.
inline constexpr std::uint32_t kKeepCommitsMax = 15;

/// What seal() does with a store that an earlier run left in the directories.
enum class OnExisting : std::uint8_t {
  kRecover,         ///< go on from its newest commit; a scratch store whose lock is free is replaced
  kReplaceScratch,  ///< a store with commits is kAlreadyExists; a scratch store whose lock is free is replaced
  kRefuse,          ///< any store is kAlreadyExists
};

}  // namespace sluice
