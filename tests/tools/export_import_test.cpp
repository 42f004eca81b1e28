#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>

#include "formats/model_reader.hpp"
#include "formats/safetensors_writer.hpp"
#include "kernels/convert.hpp"
#include "made_store.hpp"
#include "run_command.hpp"
#include "store_damage.hpp"
#include "tools/state_description.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;
using formats::ModelReader;
using formats::SafetensorsReader;
using ::testing::HasSubstr;

/// A store after three steps and two commits, not in use; what it held; a place for files; directories for other stores.
class ExportImport : public ::testing::Test {
 protected:
  ExportImport() {
    MadeStore made({store_.path()}, 2);
    made.step();
    older_ = made.commit("older");
    older_state_ = made.state();
    made.step();
    made.step();
    newer_ = made.commit("the trainer's own");
    state_ = made.state();
    made.close();
  }

  CommandResult export_to(const std::string& target, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"export", "--json", "--dir", store_.path(), "--to", target};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments);
  }
  CommandResult import_from(const std::string& source, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"import",        "--json",      "--from",           source,
                                          "--dir",         other_.path(), "--chunk-elements", "16384",
                                          "--host-memory", "8MiB",        "--threads",        "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_command(arguments);
  }
  std::string file(const std::string& name) const { return files_.path() + "/" + name; }

  // What an engine that goes on with the imported store reads.
  StateValues imported(Policy matrices = Policy::kBf16Split) {
    MadeStore made(MadeStore::options({other_.path()}), matrices);
    EXPECT_TRUE(made.seal().recovered.has_value());
    if (made.seal().recovered) recovered_ = *made.seal().recovered;
    StateValues state = made.state();
    made.close();
    return state;
  }

  // Bytes of a tensor of a model.
  std::vector<std::byte> tensor(const std::string& model, const std::string& name) const {
    const auto reader = ModelReader::open(model);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    const ModelReader::Tensor* found = reader->find(name);
    EXPECT_NE(found, nullptr) << name;
    if (found == nullptr) return {};
    std::vector<std::byte> bytes(found->info->bytes);
    const Status status = ModelReader::read(*found, {0, found->info->elements()}, bytes);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return bytes;
  }

  const ScratchDirectory store_;
  const ScratchDirectory files_;
  const ScratchDirectory other_;
  std::uint64_t older_ = 0;
  std::uint64_t newer_ = 0;
  StateValues older_state_;
  StateValues state_;
  Recovered recovered_;
};

TEST_F(ExportImport, OptimizerStateComesBackBitForBitWhateverTheDTypeOfTheWeights) {
  for (const std::string dtype : {"stored", "bf16", "fp32"}) {
    SCOPED_TRACE(dtype);
    const std::string target = file(dtype);
    const CommandResult exported = export_to(target, {"--optimizer", "--dtype", dtype});
    ASSERT_EQ(exported.exit_code, 0) << exported.errors;
    EXPECT_EQ(exported.json().at("commit"), newer_);
    EXPECT_EQ(exported.json().at("steps"), 3);
    const CommandResult result = import_from(target);
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    EXPECT_EQ(result.json().at("parameters"), 7);
    EXPECT_EQ(result.json().at("aliases"), 1);

    EXPECT_EQ(imported(), state_);
    EXPECT_EQ(recovered_.step, 3U);
    EXPECT_FALSE(recovered_.rewritten);
    EXPECT_TRUE(recovered_.differences.empty()) << ::testing::PrintToString(recovered_.differences);
    const std::string user_bytes = "the trainer's own";
    EXPECT_TRUE(std::ranges::equal(recovered_.user_bytes, std::as_bytes(std::span(user_bytes))));
    ASSERT_EQ(recovered_.groups.size(), 4U);
    EXPECT_EQ(std::get<AdamW>(recovered_.groups[0].optimizer).lr, MadeStore::kOptimizer.lr);
    fs::remove_all(other_.path());
    fs::create_directory(other_.path());
  }
}

TEST_F(ExportImport, OlderCommitMayBeExported) {
  ASSERT_EQ(export_to(file("m"), {"--optimizer", "--commit", std::to_string(older_)}).exit_code, 0);
  ASSERT_EQ(import_from(file("m")).exit_code, 0);
  EXPECT_EQ(imported(), older_state_);
}

TEST_F(ExportImport, WeightsAreThePlanesAsStored) {
  const CommandResult result = export_to(file("w.safetensors"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  for (const std::string name : {"embedding", "gain", "scale", "nothing", "ice", "codes", "deep"})
    EXPECT_EQ(tensor(file("w.safetensors"), name), state_.at(name + " weight")) << name;
  EXPECT_EQ(files_.names(), std::vector<std::string>{"w.safetensors"});
}

TEST_F(ExportImport, Bf16WeightsAreTheBf16PlaneAndFp32OnesRoundedToNearestEven) {
  ASSERT_EQ(export_to(file("w.safetensors"), {"--dtype", "bf16"}).exit_code, 0);
  EXPECT_EQ(tensor(file("w.safetensors"), "embedding"), state_.at("embedding weight"));
  const std::vector<std::byte>& gain = state_.at("gain weight");
  std::vector<std::uint16_t> rounded(gain.size() / sizeof(float));
  kernels::f32_to_bf16(rounded.data(), reinterpret_cast<const float*>(gain.data()), rounded.size());
  const std::vector<std::byte> exported = tensor(file("w.safetensors"), "gain");
  EXPECT_TRUE(std::ranges::equal(exported, std::as_bytes(std::span(rounded))));
  EXPECT_EQ(tensor(file("w.safetensors"), "codes"), state_.at("codes weight"))
      << "frozen ones stay as stored";
}

TEST_F(ExportImport, Fp32WeightsAreTheMasters) {
  ASSERT_EQ(export_to(file("w.safetensors"), {"--dtype", "fp32"}).exit_code, 0);
  for (const std::string name : {"embedding", "gain", "scale", "deep"})
    EXPECT_EQ(tensor(file("w.safetensors"), name), state_.at(name + " master")) << name;
}

TEST_F(ExportImport, WeightsAloneGiveMastersWithoutResidualAndNoMoments) {
  ASSERT_EQ(export_to(file("w.safetensors")).exit_code, 0);
  const CommandResult result = import_from(file("w.safetensors"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(result.json().at("optimizer").is_null());
  const auto model = ModelReader::open(file("w.safetensors"));
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(model->files()[0].metadata().at("alias.head"), "embedding");

  // An engine that registers the same names otherwise goes on from it by rewriting.
  const StateValues values = imported();
  const std::vector<std::byte>& weight = state_.at("embedding weight");
  std::vector<float> master(weight.size() / 2);
  kernels::bf16_to_f32(master.data(), reinterpret_cast<const std::uint16_t*>(weight.data()), master.size());
  EXPECT_TRUE(std::ranges::equal(values.at("embedding master"), std::as_bytes(std::span(master))));
  EXPECT_EQ(values.at("ice weight"), state_.at("ice weight"));
  EXPECT_TRUE(
      std::ranges::all_of(values.at("deep moment2"), [](std::byte byte) { return byte == std::byte{}; }));
  EXPECT_TRUE(
      std::ranges::all_of(values.at("deep count"), [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_F(ExportImport, AnotherPolicyKeepsMastersMomentsAndCounts) {
  ASSERT_EQ(export_to(file("m"), {"--optimizer"}).exit_code, 0);
  const CommandResult result = import_from(file("m"), {"--policy", "fp32"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const StateValues values = imported(Policy::kFp32);
  for (const std::string name : {"embedding", "deep", "gain", "scale"}) {
    EXPECT_EQ(values.at(name + " master"), state_.at(name + " master")) << name;
    EXPECT_EQ(values.at(name + " moment1"), state_.at(name + " moment1")) << name;
    EXPECT_EQ(values.at(name + " moment2"), state_.at(name + " moment2")) << name;
    EXPECT_EQ(values.at(name + " count"), state_.at(name + " count")) << name;
  }
}

TEST_F(ExportImport, SeveralFilesHaveAnIndexAndComeBack) {
  const CommandResult result = export_to(file("m"), {"--optimizer", "--shard-bytes", "64KiB"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_TRUE(fs::exists(file("m") + "/model.safetensors.index.json"));
  EXPECT_FALSE(fs::exists(file("m") + "/model.safetensors"));
  const auto model = ModelReader::open(file("m"));
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_GT(model->files().size(), 1U);
  ASSERT_EQ(import_from(file("m")).exit_code, 0);
  EXPECT_EQ(imported(), state_);
}

TEST_F(ExportImport, OptimizerFileOfASingleFileLiesBesideIt) {
  ASSERT_EQ(export_to(file("w.safetensors"), {"--optimizer"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(file("w.optimizer.safetensors")));
  ASSERT_EQ(import_from(file("w.safetensors")).exit_code, 0);
  EXPECT_EQ(imported(), state_);
}

TEST_F(ExportImport, FilesThatAreThereAreNotReplaced) {
  ASSERT_EQ(export_to(file("m"), {"--optimizer"}).exit_code, 0);
  const auto before = tensor(file("m"), "deep");
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--optimizer"}}) {
    const CommandResult again = export_to(file("m"), more);
    EXPECT_EQ(again.exit_code, 1);
    EXPECT_THAT(again.errors, HasSubstr("AlreadyExists"));
  }
  EXPECT_EQ(tensor(file("m"), "deep"), before);
  // Also when only the second file is taken.
  fs::create_directory(file("n"));
  std::ofstream(file("n") + "/optimizer.safetensors") << "mine";
  EXPECT_EQ(export_to(file("n"), {"--optimizer"}).exit_code, 1);
  EXPECT_FALSE(fs::exists(file("n") + "/model.safetensors"));
  EXPECT_EQ(fs::file_size(file("n") + "/optimizer.safetensors"), 4U);
}

TEST_F(ExportImport, DirectoryWithCommitsIsNotImportedInto) {
  ASSERT_EQ(export_to(file("m"), {"--optimizer"}).exit_code, 0);
  ASSERT_EQ(import_from(file("m")).exit_code, 0);
  const CommandResult again = import_from(file("m"));
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.errors, HasSubstr("AlreadyExists"));
  EXPECT_EQ(imported(), state_);
}

TEST_F(ExportImport, DamagedPlaneIsNotExportedAndNothingIsLeft) {
  flip(find_plane_byte(store_.path(), newer_, "deep", 20'000, 0));
  const CommandResult result = export_to(file("m"), {"--optimizer"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.errors, HasSubstr("DataLoss"));
  EXPECT_THAT(result.errors, HasSubstr("deep"));
  EXPECT_TRUE(files_.names().empty()) << ::testing::PrintToString(files_.names());
  EXPECT_EQ(export_to(file("m"), {"--commit", std::to_string(older_)}).exit_code, 0);
}

TEST_F(ExportImport, FilesThatContradictEachOtherAreRefusedAndNoStoreIsLeft) {
  ASSERT_EQ(export_to(file("w.safetensors"), {"--optimizer"}).exit_code, 0);
  ASSERT_EQ(export_to(file("v.safetensors")).exit_code, 0);
  // The optimizer's file beside another model's weights.
  {
    auto writer =
        formats::SafetensorsWriter::create(file("x.safetensors"), {{"embedding", DType::kF32, {2}}}, {});
    ASSERT_TRUE(writer.ok());
    const std::vector<std::byte> zeros(8);
    ASSERT_TRUE(writer->append("embedding", zeros).ok());
    ASSERT_TRUE(writer->finish().ok());
    fs::copy_file(file("w.optimizer.safetensors"), file("x.optimizer.safetensors"));
  }
  // Weights taken for an optimizer's file.
  fs::copy_file(file("w.safetensors"), file("v.optimizer.safetensors"));
  for (const std::string name : {"x.safetensors", "v.safetensors"}) {
    const CommandResult result = import_from(file(name));
    EXPECT_EQ(result.exit_code, 1) << name;
    EXPECT_THAT(result.errors, HasSubstr("DataLoss")) << name;
    EXPECT_THAT(result.errors, HasSubstr("optimizer.safetensors")) << name;
    EXPECT_TRUE(other_.names().empty()) << name;
  }
}

/// A file whose tensors are all empty.
void write_empty(const std::string& path, std::vector<formats::TensorSpec> tensors,
                 formats::Metadata metadata) {
  auto writer = formats::SafetensorsWriter::create(path, std::move(tensors), std::move(metadata));
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  ASSERT_TRUE(writer->finish().ok());
}

TEST_F(ExportImport, FilesWithWhatNoEngineTakesAreFailedWork) {
  constexpr std::uint64_t kLarge = std::uint64_t{1} << 40;
  struct Fault {
    std::vector<formats::TensorSpec> tensors;
    formats::Metadata metadata;
    const char* said;
  };
  const std::vector<formats::TensorSpec> two = {{"a", DType::kF32, {0}}, {"b", DType::kF32, {0}}};
  for (const Fault& fault : {Fault{{{"", DType::kF32, {0}}}, {}, "''"},
                             {{{"a", DType::kF32, {kLarge, kLarge, 0}}}, {}, "2^48"},
                             {{{"a", DType::kF32, {~std::uint64_t{0}, 0}}}, {}, "'a'"},
                             {{{std::string(70'000, 'a'), DType::kF32, {0}}}, {}, "70000"},
                             {two, {{"alias.", "a"}}, "''"},
                             {two, {{"alias.b", "a"}}, "'b' is registered already"}}) {
    SCOPED_TRACE(fault.said);
    write_empty(file("x.safetensors"), fault.tensors, fault.metadata);
    const CommandResult result = import_from(file("x.safetensors"));
    EXPECT_EQ(result.exit_code, 1) << result.errors;
    EXPECT_THAT(result.errors, HasSubstr("DataLoss"));
    EXPECT_THAT(result.errors, HasSubstr(file("x.safetensors")));
    EXPECT_THAT(result.errors, HasSubstr(fault.said));
    EXPECT_TRUE(other_.names().empty());
    fs::remove(file("x.safetensors"));
  }
}

TEST_F(ExportImport, ParameterDescribedTwiceIsFailedWork) {
  const auto metadata = encode(
      {.groups = {{.name = "ice", .policy = Policy::kFrozen, .optimizer = {}, .frozen_dtype = DType::kF32}},
       .parameters = {{"a", 0}, {"a", 0}},
       .aliases = {}});
  ASSERT_TRUE(metadata.ok());
  write_empty(file("x.safetensors"), {{"a", DType::kF32, {0}}, {"b", DType::kF32, {0}}}, {});
  write_empty(file("x.optimizer.safetensors"), {}, *metadata);
  const CommandResult result = import_from(file("x.safetensors"));
  EXPECT_EQ(result.exit_code, 1) << result.errors;
  EXPECT_THAT(result.errors, HasSubstr("DataLoss"));
  EXPECT_THAT(result.errors, HasSubstr("'a' is registered already"));
}

/// A store with one parameter and one commit.
void make_store(const std::string& directory, const std::string& parameter, const std::string& group_name) {
  auto device = make_host_device();
  ASSERT_TRUE(device.ok());
  auto engine = Engine::create(MadeStore::options({directory}), *device, make_single_communicator());
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto group = (*engine)->add_group({.name = group_name});
  ASSERT_TRUE(group.ok());
  ASSERT_TRUE((*engine)->add_parameter({.name = parameter, .shape = {3}, .group = *group}).ok());
  ASSERT_TRUE((*engine)->seal().ok());
  ASSERT_TRUE((*engine)->commit({}, CommitMode::kWait).ok());
  ASSERT_TRUE((*engine)->close().ok());
}

TEST_F(ExportImport, NamesThatTheFormatDoesNotTakeAreFailedWork) {
  struct Names {
    std::string parameter, group;
    bool weights_fit;
  };
  for (const Names& names :
       {Names{"p\xff", "g", false}, {"p", "g\xff", true}, {"__metadata__", "g", false}}) {
    SCOPED_TRACE(names.parameter + " of " + names.group);
    const ScratchDirectory directory;
    make_store(directory.path(), names.parameter, names.group);
    for (const std::string target : {"x.safetensors", "x"}) {
      const std::vector<std::string> weights = {"export", "--dir", directory.path(), "--to", file(target)};
      const CommandResult plain = run_command(weights);
      EXPECT_EQ(plain.exit_code, names.weights_fit ? 0 : 1) << plain.errors;
      EXPECT_EQ(plain.errors.find("DataLoss") == std::string::npos, names.weights_fit) << plain.errors;
      fs::remove_all(file(target));
      std::vector<std::string> all = weights;
      all.push_back("--optimizer");
      const CommandResult with_optimizer = run_command(all);
      EXPECT_EQ(with_optimizer.exit_code, 1) << with_optimizer.errors;
      EXPECT_THAT(with_optimizer.errors, HasSubstr("DataLoss"));
      EXPECT_TRUE(files_.names().empty()) << ::testing::PrintToString(files_.names());
    }
  }
}

TEST_F(ExportImport, NonsenseIsBadUsage) {
  EXPECT_EQ(run_command({"export", "--dir", store_.path()}).exit_code, 2);
  EXPECT_EQ(run_command({"export", "--to", file("m")}).exit_code, 2);
  EXPECT_EQ(export_to(file("m"), {"--dtype", "fp8"}).exit_code, 2);
  EXPECT_EQ(export_to(file("m"), {"--shard-bytes", "much"}).exit_code, 2);
  EXPECT_EQ(export_to(file("m.safetensors"), {"--shard-bytes", "1MiB"}).exit_code, 2);
  EXPECT_EQ(run_command({"import", "--dir", other_.path()}).exit_code, 2);
  EXPECT_EQ(import_from(file("missing")).exit_code, 2);
  EXPECT_EQ(import_from(files_.path(), {"--policy", "fp64"}).exit_code, 2);
  EXPECT_EQ(import_from(files_.path(), {"--keep-commits", "0"}).exit_code, 2);
  EXPECT_TRUE(files_.names().empty());
  EXPECT_TRUE(other_.names().empty());
}

}  // namespace
}  // namespace sluice::tools
