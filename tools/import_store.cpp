#include "tools/import_store.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "kernels/convert.hpp"
#include "kernels/planes.hpp"
#include "sluice/sluice.hpp"
#include "tools/import_plan.hpp"

namespace sluice::tools {
namespace {

// Of a moment, written at once: whole granules, so that 8-bit ones come back as they were.
constexpr std::uint64_t kPieceElements = kImportBytes / sizeof(float);
static_assert(kPieceElements % kernels::kGranuleElements == 0);
constexpr std::size_t kHalvesElements = 4096;  // widened at once, on the stack

// Counts what was taken from the files and asks whether to go on.
class Progress {
 public:
  explicit Progress(const std::function<Status(std::uint64_t)>& on_progress) : on_progress_(on_progress) {}
  Status add(std::uint64_t bytes) { return on_progress_(bytes_ += bytes); }

 private:
  const std::function<Status(std::uint64_t)>& on_progress_;
  std::uint64_t bytes_ = 0;
};

// Fills `target` with fp32 or, for a frozen parameter, with the tensor's own bytes.
Status read_values(const SourceTensor& source, Range range, DType dtype, void* target) {
  const DType stored = source.info->dtype;
  const std::span<std::byte> bytes(static_cast<std::byte*>(target), range.count * dtype_bytes(dtype));
  if (stored == dtype) return source.read(range, bytes);
  const auto convert = stored == DType::kBF16 ? kernels::bf16_to_f32 : kernels::f16_to_f32;
  std::array<std::uint16_t, kHalvesElements> halves;
  for (std::uint64_t done = 0; done < range.count; done += halves.size()) {
    const Range piece{range.first + done, std::min<std::uint64_t>(halves.size(), range.count - done)};
    const auto read = std::span(halves).first(piece.count);
    SLUICE_RETURN_IF_ERROR(source.read(piece, std::as_writable_bytes(read)));
    convert(static_cast<float*>(target) + done, read.data(), read.size());
  }
  return {};
}

// Of the largest parameter's weights, on whole pages: what an engine must be able to hold.
std::uint64_t largest_weight_bytes(const ImportPlan& plan) {
  constexpr std::uint64_t kPage = 4096;
  std::uint64_t largest = kPage;
  for (const PlannedParameter& parameter : plan.parameters) {
    const StateDescription::Group& group = plan.groups[parameter.group];
    const formats::TensorInfo& info = *parameter.first_values.info;
    const kernels::PlaneFormat weight =
        kernels::planes_of(group.policy, group.optimizer, group.frozen_dtype).front();
    largest = std::max(largest, (weight.bytes(info.elements()) + kPage - 1) / kPage * kPage);
  }
  return largest;
}

class Importer {
 public:
  Importer(const std::string& source, const ImportPlan& plan, Progress& progress)
      : source_(source), plan_(plan), progress_(progress) {}

  Status open(EngineOptions options);
  Status write_optimizer_state();
  Result<std::uint64_t> commit();
  Stats stats() const { return engine_->stats(); }
  Status close() { return engine_->close(); }

 private:
  Status register_all();
  Status write_moment(ParameterId parameter, View view, const SourceTensor& source,
                      std::span<std::byte> buffer);

  const std::string& source_;
  const ImportPlan& plan_;
  Progress& progress_;
  std::unique_ptr<Engine> engine_;
  std::vector<ParameterId> ids_;
};

// What is registered comes from the files alone: what the engine refuses of it, it refuses of them.
Status blame_files(const Status& registered, const std::string& source) {
  if (registered.ok()) return registered;
  return {Code::kDataLoss, fmt::format("{}: {}", source, registered.message()), registered.native()};
}

Status Importer::open(EngineOptions options) {
  options.first_step = plan_.steps;
  options.seed = plan_.seed;
  options.existing = OnExisting::kReplaceScratch;
  options.max_fetch_bytes = options.device_budget_bytes = largest_weight_bytes(plan_);
  if (plan_.user_bytes)
    options.max_user_bytes = std::max(options.max_user_bytes, plan_.user_bytes.info->bytes);
  SLUICE_ASSIGN_OR_RETURN(auto device, make_host_device());
  SLUICE_ASSIGN_OR_RETURN(engine_,
                          Engine::create(std::move(options), std::move(device), make_single_communicator()));
  SLUICE_RETURN_IF_ERROR(blame_files(register_all(), source_));
  return engine_->seal().status();
}

Status Importer::register_all() {
  std::vector<GroupId> groups;
  for (const StateDescription::Group& group : plan_.groups) {
    SLUICE_ASSIGN_OR_RETURN(groups.emplace_back(), engine_->add_group({.name = group.name,
                                                                       .policy = group.policy,
                                                                       .optimizer = group.optimizer,
                                                                       .gradient = group.gradient,
                                                                       .frozen_dtype = group.frozen_dtype}));
  }
  for (const PlannedParameter& parameter : plan_.parameters) {
    const SourceTensor& source = parameter.first_values;
    const auto initial = [&source, this](Range range, DType dtype, void* target) -> Status {
      SLUICE_RETURN_IF_ERROR(read_values(source, range, dtype, target));
      return progress_.add(range.count * dtype_bytes(source.info->dtype));
    };
    const std::vector<std::uint64_t>& shape = source.info->shape;
    SLUICE_ASSIGN_OR_RETURN(ids_.emplace_back(),
                            engine_->add_parameter({.name = parameter.name,
                                                    .shape = {shape.begin(), shape.end()},
                                                    .group = groups[parameter.group],
                                                    .initial = InitialCallback(initial)}));
  }
  for (const StateDescription::Alias& alias : plan_.aliases)
    SLUICE_RETURN_IF_ERROR(engine_->add_alias(alias.name, ids_[alias.parameter]).status());
  return {};
}

Status Importer::write_moment(ParameterId parameter, View view, const SourceTensor& source,
                              std::span<std::byte> buffer) {
  if (!source) return {};
  const std::uint64_t elements = source.info->elements();
  for (std::uint64_t first = 0; first < elements; first += kPieceElements) {
    const Range range{first, std::min(kPieceElements, elements - first)};
    const std::span<std::byte> bytes = buffer.first(range.count * sizeof(float));
    SLUICE_RETURN_IF_ERROR(source.read(range, bytes));
    const Status written = engine_->write(parameter, view, range, bytes.data(), DType::kF32);
    if (written.code() == Code::kInvalidArgument) return blame_files(written, source_);
    SLUICE_RETURN_IF_ERROR(written);
    SLUICE_RETURN_IF_ERROR(progress_.add(bytes.size()));
  }
  return {};
}

Status Importer::write_optimizer_state() {
  const auto buffer = std::make_unique<std::byte[]>(kImportBytes);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const PlannedParameter& parameter = plan_.parameters[i];
    if (!parameter.step) continue;
    const std::span<std::byte> bytes(buffer.get(), kImportBytes);
    SLUICE_RETURN_IF_ERROR(write_moment(ids_[i], View::kMoment1, parameter.moment1, bytes));
    SLUICE_RETURN_IF_ERROR(write_moment(ids_[i], View::kMoment2, parameter.moment2, bytes));
    std::uint64_t count = 0;
    SLUICE_RETURN_IF_ERROR(parameter.step.read({0, 1}, std::as_writable_bytes(std::span(&count, 1))));
    SLUICE_RETURN_IF_ERROR(engine_->write(ids_[i], View::kCount, {0, 1}, &count, DType::kU64));
  }
  return {};
}

Result<std::uint64_t> Importer::commit() {
  std::vector<std::byte> user_bytes;
  if (plan_.user_bytes) {
    user_bytes.resize(plan_.user_bytes.info->bytes);
    SLUICE_RETURN_IF_ERROR(plan_.user_bytes.read({0, user_bytes.size()}, user_bytes));
  }
  SLUICE_ASSIGN_OR_RETURN(const CommitTicket ticket, engine_->commit(user_bytes, CommitMode::kWait));
  SLUICE_RETURN_IF_ERROR(ticket.wait());
  return ticket.number();
}

}  // namespace

Result<ImportReport> import_store(const ImportOptions& options,
                                  const std::function<Status(std::uint64_t bytes_read)>& on_progress) {
  SLUICE_ASSIGN_OR_RETURN(const ImportPlan plan, plan_import(options.source, options.policy));
  Progress progress(on_progress);
  Importer importer(options.source, plan, progress);
  SLUICE_RETURN_IF_ERROR(importer.open(options.engine));
  SLUICE_RETURN_IF_ERROR(importer.write_optimizer_state());
  ImportReport report;
  SLUICE_ASSIGN_OR_RETURN(report.commit, importer.commit());
  if (plan.optimizer) report.optimizer = plan.optimizer->path();
  report.parameters = plan.parameters.size();
  report.aliases = plan.aliases.size();
  report.stats = importer.stats();
  SLUICE_RETURN_IF_ERROR(importer.close());
  return report;
}

}  // namespace sluice::tools
