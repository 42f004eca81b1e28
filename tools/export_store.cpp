#include "tools/export_store.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/model_reader.hpp"
#include "formats/model_writer.hpp"
#include "formats/path.hpp"
#include "formats/safetensors_writer.hpp"
#include "kernels/convert.hpp"
#include "store/value_reader.hpp"
#include "tools/state_description.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using store::Plane;
using store::ReadableParameter;

constexpr std::uint64_t kPieceElements = 1 << 20;
// Of a piece: what is made of it, and what it is made of.
constexpr std::uint64_t kMadeBytes = kPieceElements * sizeof(float);
static_assert(kMadeBytes + kPieceElements * sizeof(float) == kExportBytes);

bool stepped(const ReadableParameter& parameter) { return parameter.policy != Policy::kFrozen; }

bool has(const ReadableParameter& parameter, Plane plane) {
  return std::ranges::any_of(parameter.planes, [&](const auto& format) { return format.plane == plane; });
}

DType exported_dtype(const ReadableParameter& parameter, ExportDType dtype) {
  if (!stepped(parameter) || dtype == ExportDType::kStored) return parameter.planes.front().dtype;
  return dtype == ExportDType::kBF16 ? DType::kBF16 : DType::kF32;
}

std::vector<std::uint64_t> shape_of(const ReadableParameter& parameter) {
  return {parameter.shape.begin(), parameter.shape.end()};
}

// What one tensor of a file is made of.
struct Source {
  enum class Kind : std::uint8_t { kWeight, kMaster, kMoment1, kMoment2, kStep, kUserBytes };
  Kind kind = Kind::kWeight;
  std::uint32_t index = 0;  // of the parameter, or the rank
};

// The tensors of one file.
struct Plan {
  std::vector<formats::TensorSpec> tensors;
  std::unordered_map<std::string, Source> sources;
  formats::Metadata metadata;

  void add(std::string name, DType dtype, std::vector<std::uint64_t> shape, Source source) {
    sources.emplace(name, source);
    tensors.push_back({std::move(name), dtype, std::move(shape)});
  }
};

Plan plan_weights(const store::StoreReader& reader, ExportDType dtype) {
  Plan plan;
  for (std::uint32_t i = 0; i < reader.parameters().size(); ++i) {
    const ReadableParameter& parameter = reader.parameters()[i];
    plan.add(parameter.name, exported_dtype(parameter, dtype), shape_of(parameter),
             {Source::Kind::kWeight, i});
    for (const std::string& alias : parameter.aliases)
      plan.metadata.emplace("alias." + alias, parameter.name);
  }
  return plan;
}

StateDescription describe(const store::StoreReader& reader) {
  StateDescription description{
      .steps = reader.steps(), .seed = reader.seed(), .groups = {}, .parameters = {}, .aliases = {}};
  for (const store::GroupSettings& group : reader.groups())
    description.groups.push_back({.name = group.name, .optimizer = group.optimizer});
  for (std::uint32_t i = 0; i < reader.parameters().size(); ++i) {
    const ReadableParameter& parameter = reader.parameters()[i];
    StateDescription::Group& group = description.groups[parameter.group];
    group.policy = parameter.policy;
    group.gradient = parameter.gradient;
    group.frozen_dtype = parameter.frozen_dtype;
    description.parameters.push_back({.name = parameter.name, .group = parameter.group});
    for (const std::string& alias : parameter.aliases)
      description.aliases.push_back({.name = alias, .parameter = i});
  }
  return description;
}

Result<Plan> plan_optimizer(const store::StoreReader& reader, ExportDType dtype) {
  Plan plan;
  for (std::uint32_t i = 0; i < reader.parameters().size(); ++i) {
    const ReadableParameter& parameter = reader.parameters()[i];
    if (!stepped(parameter)) continue;
    const auto add = [&](std::string_view suffix, Source::Kind kind) {
      plan.add(parameter.name + std::string(suffix), DType::kF32, shape_of(parameter), {kind, i});
    };
    if (exported_dtype(parameter, dtype) != DType::kF32) add(kMasterSuffix, Source::Kind::kMaster);
    if (has(parameter, Plane::kMoment1)) add(kMoment1Suffix, Source::Kind::kMoment1);
    if (has(parameter, Plane::kMoment2)) add(kMoment2Suffix, Source::Kind::kMoment2);
    plan.add(parameter.name + std::string(kStepSuffix), DType::kU64, {}, {Source::Kind::kStep, i});
  }
  for (std::uint32_t rank = 0; rank < reader.superblock().world; ++rank) {
    plan.add(user_bytes_name(rank), DType::kU8, {reader.user_bytes(rank).size()},
             {Source::Kind::kUserBytes, rank});
  }
  SLUICE_ASSIGN_OR_RETURN(plan.metadata, encode(describe(reader)));
  return plan;
}

// Reads pieces of a parameter and makes of them what a file holds.
class PieceMaker {
 public:
  explicit PieceMaker(store::StoreReader& reader) : reader_(reader), values_(reader) {}

  // Lifetime: of what is returned, until the next call.
  Result<std::span<const std::byte>> weight(std::uint32_t parameter, DType dtype, Range range) {
    const ReadableParameter& from = reader_.parameters()[parameter];
    const DType stored = from.planes.front().dtype;
    if (dtype == stored) {
      SLUICE_RETURN_IF_ERROR(reader_.read(parameter, Plane::kWeight, range, made()));
      return made_of(range, stored);
    }
    if (dtype == DType::kF32) return master(parameter, range);
    SLUICE_RETURN_IF_ERROR(values_.read_master(parameter, range, source()));
    kernels::f32_to_bf16(reinterpret_cast<std::uint16_t*>(made()), source(), range.count);
    return made_of(range, DType::kBF16);
  }

  Result<std::span<const std::byte>> master(std::uint32_t parameter, Range range) {
    SLUICE_RETURN_IF_ERROR(values_.read_master(parameter, range, reinterpret_cast<float*>(made())));
    return made_of(range, DType::kF32);
  }

  // Requires: the range begins a granule.
  Result<std::span<const std::byte>> moment(std::uint32_t parameter, Plane plane, Range range) {
    SLUICE_RETURN_IF_ERROR(values_.read_moment(parameter, plane, range, reinterpret_cast<float*>(made())));
    return made_of(range, DType::kF32);
  }

 private:
  std::span<const std::byte> made_of(Range range, DType dtype) {
    return {made(), range.count * dtype_bytes(dtype)};
  }
  std::byte* made() { return buffer_.get(); }
  float* source() { return reinterpret_cast<float*>(buffer_.get() + kMadeBytes); }

  store::StoreReader& reader_;
  store::ValueReader values_;
  const std::unique_ptr<std::byte[]> buffer_ = std::make_unique<std::byte[]>(kExportBytes);
};

class Exporter {
 public:
  Exporter(store::StoreReader& reader, const std::function<Status(std::uint64_t)>& on_progress)
      : reader_(reader), pieces_(reader), on_progress_(on_progress) {}

  // Everything but finish().
  template <class Writer>
  Status write(Writer& writer, const Plan& plan) {
    for (const formats::TensorSpec& tensor : writer.tensors()) {
      const auto append = [&](std::span<const std::byte> bytes) -> Status {
        SLUICE_RETURN_IF_ERROR(writer.append(tensor.name, bytes));
        bytes_ += bytes.size();
        return on_progress_(bytes_);
      };
      SLUICE_RETURN_IF_ERROR(write_tensor(tensor.dtype, plan.sources.at(tensor.name), append));
      ++tensors_;
    }
    return {};
  }

  std::uint64_t tensors() const { return tensors_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  template <class Append>
  Status write_tensor(DType dtype, const Source& source, const Append& append) {
    if (source.kind == Source::Kind::kUserBytes) return append(reader_.user_bytes(source.index));
    const ReadableParameter& parameter = reader_.parameters()[source.index];
    if (source.kind == Source::Kind::kStep) return append(std::as_bytes(std::span(&parameter.step_count, 1)));
    const std::uint64_t piece = std::min(kPieceElements, kMadeBytes / dtype_bytes(dtype));
    for (std::uint64_t first = 0; first < parameter.elements; first += piece) {
      const Range range{first, std::min(piece, parameter.elements - first)};
      SLUICE_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, make(dtype, source, range));
      SLUICE_RETURN_IF_ERROR(append(bytes));
    }
    return {};
  }

  Result<std::span<const std::byte>> make(DType dtype, const Source& source, Range range) {
    switch (source.kind) {
      case Source::Kind::kMoment1:
        return pieces_.moment(source.index, Plane::kMoment1, range);
      case Source::Kind::kMoment2:
        return pieces_.moment(source.index, Plane::kMoment2, range);
      case Source::Kind::kMaster:
        return pieces_.master(source.index, range);
      default:
        return pieces_.weight(source.index, dtype, range);
    }
  }

  store::StoreReader& reader_;
  PieceMaker pieces_;
  const std::function<Status(std::uint64_t)>& on_progress_;
  std::uint64_t tensors_ = 0;
  std::uint64_t bytes_ = 0;
};

// The directory to write into, made where it is missing, and gone again unless keep() was called.
class TargetDirectory {
 public:
  static Result<TargetDirectory> make(const std::string& path) {
    TargetDirectory directory;
    std::error_code error;
    if (fs::create_directory(path, error)) directory.made_ = path;
    if (error) return status_from_errno(error.value(), "making directory " + path);
    return directory;
  }
  ~TargetDirectory() {
    std::error_code ignored;
    if (!made_.empty()) fs::remove(made_, ignored);  // only an empty one
  }
  TargetDirectory(TargetDirectory&& other) noexcept : made_(std::exchange(other.made_, {})) {}
  void keep() { made_.clear(); }

 private:
  TargetDirectory() = default;
  std::string made_;
};

// All tensors and names are the store's own: where they do not fit the format the work fails, nobody asked wrongly.
template <class Writer>
Result<Writer> laid_out(Result<Writer> writer) {
  const Status& status = writer.status();
  if (status.code() != Code::kInvalidArgument) return writer;
  return Status(Code::kDataLoss, status.message(), status.native());
}

Result<formats::SafetensorsWriter> create_file(const std::string& path, const Plan& plan) {
  SLUICE_ASSIGN_OR_RETURN(formats::Place place, formats::locate(path, io::Access::kReadWrite));
  return laid_out(formats::SafetensorsWriter::create(std::move(place), plan.tensors, plan.metadata));
}

// Writes both files so that they appear together, or neither.
template <class Writer>
Status write_files(Exporter& exporter, const Plan& weights, Writer& weights_writer, const Plan& optimizer,
                   const std::string& optimizer_file) {
  std::optional<formats::SafetensorsWriter> optimizer_writer;
  if (!optimizer_file.empty()) {
    SLUICE_ASSIGN_OR_RETURN(auto writer, create_file(optimizer_file, optimizer));
    optimizer_writer.emplace(std::move(writer));
    SLUICE_RETURN_IF_ERROR(exporter.write(*optimizer_writer, optimizer));
  }
  SLUICE_RETURN_IF_ERROR(exporter.write(weights_writer, weights));
  if (optimizer_writer) SLUICE_RETURN_IF_ERROR(optimizer_writer->finish());
  const Status finished = weights_writer.finish();
  std::error_code ignored;
  if (!finished.ok() && optimizer_writer) fs::remove(optimizer_file, ignored);
  return finished;
}

}  // namespace

bool names_file(const std::string& target) { return fs::path(target).extension() == ".safetensors"; }

Result<ExportReport> export_store(store::StoreReader& reader, const ExportOptions& options,
                                  const std::function<Status(std::uint64_t bytes_written)>& on_progress) {
  const bool to_file = names_file(options.target);
  const bool with_optimizer = options.parts == ExportParts::kAll;
  const Plan weights = plan_weights(reader, options.dtype);
  Plan optimizer;
  if (with_optimizer) {
    SLUICE_ASSIGN_OR_RETURN(optimizer, plan_optimizer(reader, options.dtype));
  }
  ExportReport report{.weights = options.target, .optimizer = {}};
  if (with_optimizer) {
    report.optimizer =
        optimizer_path(to_file ? options.target : (fs::path(options.target) / formats::kModelName).string());
  }
  Exporter exporter(reader, on_progress);
  if (to_file) {
    SLUICE_ASSIGN_OR_RETURN(auto writer, create_file(options.target, weights));
    SLUICE_RETURN_IF_ERROR(write_files(exporter, weights, writer, optimizer, report.optimizer));
  } else {
    SLUICE_ASSIGN_OR_RETURN(TargetDirectory directory, TargetDirectory::make(options.target));
    SLUICE_ASSIGN_OR_RETURN(
        auto writer, laid_out(formats::ModelWriter::create(options.target, weights.tensors, weights.metadata,
                                                           {.max_file_bytes = options.file_bytes_max})));
    SLUICE_RETURN_IF_ERROR(write_files(exporter, weights, writer, optimizer, report.optimizer));
    directory.keep();
  }
  report.tensors = exporter.tensors();
  report.bytes = exporter.bytes();
  return report;
}

}  // namespace sluice::tools
