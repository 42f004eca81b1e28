#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/tensors.hpp"
#include "sluice/optimizer.hpp"
#include "sluice/status.hpp"
#include "sluice/types.hpp"

namespace sluice::tools {

/// What an exported state is beside its tensors, in the metadata of the file with the optimizer's.
///
/// That file has for each stepped parameter `<name>.moment1` and `<name>.moment2` (F32) where its optimizer has them,
/// `<name>.master` (F32) where the weights' file does not hold it, `<name>.step` (U64, a scalar); and
/// `sluice.user_bytes.<rank>` (U8). No two of these names are equal, whatever the parameters are called: they end
/// otherwise, or go on otherwise.
struct StateDescription {
  struct Group {
    std::string name;
    Policy policy = Policy::kBf16Split;
    Optimizer optimizer;
    GradientStorage gradient = GradientStorage::kFp32;
    DType frozen_dtype = DType::kBF16;
  };
  struct Parameter {
    std::string name;
    std::uint32_t group = 0;  ///< index in groups
  };
  struct Alias {
    std::string name;
    std::uint32_t parameter = 0;  ///< index in parameters
  };

  std::uint64_t steps = 0;
  std::uint64_t seed = 0;
  std::vector<Group> groups;
  std::vector<Parameter> parameters;  ///< in order of registration
  std::vector<Alias> aliases;
};

inline constexpr std::string_view kMasterSuffix = ".master";
inline constexpr std::string_view kMoment1Suffix = ".moment1";
inline constexpr std::string_view kMoment2Suffix = ".moment2";
inline constexpr std::string_view kStepSuffix = ".step";

std::string user_bytes_name(std::uint32_t rank);

/// Beside "model.safetensors" "optimizer.safetensors" in the same folder, beside any other "x.safetensors"
/// "x.optimizer.safetensors".
std::string optimizer_path(const std::string& model_path);

/// Errors: kDataLoss for a name that is not UTF-8, which a file's metadata cannot hold.
Result<formats::Metadata> encode(const StateDescription& description);

/// Errors: kDataLoss naming `path` and what is wrong: an entry that is missing or of another type, an index out of its
/// range; kUnimplemented for another version.
Result<StateDescription> decode_description(const formats::Metadata& metadata, const std::string& path);

}  // namespace sluice::tools
