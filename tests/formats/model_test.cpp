#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>

#include <cerrno>
#include <optional>

#include <gmock/gmock.h>

#include "files.hpp"
#include "formats/model_reader.hpp"
#include "formats/model_writer.hpp"
#include "support/child.hpp"
#include "support/refusal.hpp"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kFirst = "model-00001-of-00002.safetensors";
const std::string kSecond = "model-00002-of-00002.safetensors";
constexpr std::uint64_t kFileBytes = 16 * 1024;

std::string entry(const std::string& name) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", name);
}

class Model : public testing::Test {
 protected:
  const std::string& directory() const { return directory_.path(); }
  std::string path(const std::string& name) const { return directory() + "/" + name; }
  std::vector<std::string> names() const { return names_in(directory()); }

  Result<ModelWriter> writer(std::vector<TensorSpec> tensors,
                             std::uint64_t max_file_bytes = kFileBytes) const {
    return ModelWriter::create(directory(), std::move(tensors), {{"format", "pt"}},
                               {.max_file_bytes = max_file_bytes});
  }

  Status append_all(ModelWriter& model) const {
    for (const TensorSpec& tensor : model.tensors()) {
      SLUICE_RETURN_IF_ERROR(model.append(tensor.name, bytes_of(pattern(tensor))));
    }
    return Status();
  }

  void write(std::vector<TensorSpec> tensors, std::uint64_t max_file_bytes = kFileBytes) const {
    auto model = writer(std::move(tensors), max_file_bytes);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const Status appended = append_all(*model);
    ASSERT_TRUE(appended.ok()) << appended.to_string();
    const Status finished = model->finish();
    ASSERT_TRUE(finished.ok()) << finished.to_string();
  }

  void expect_holds(const std::string& opened, const std::vector<TensorSpec>& tensors) const {
    const auto reader = ModelReader::open(opened);
    ASSERT_TRUE(reader.ok()) << reader.status().to_string();
    EXPECT_EQ(reader->tensors().size(), tensors.size());
    for (const TensorSpec& tensor : tensors) {
      const ModelReader::Tensor* found = reader->find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->info->shape, tensor.shape);
      EXPECT_EQ(read_all(*found->file, *found->info), pattern(tensor)) << tensor.name;
    }
  }

  void put_index(const std::string& weight_map) const {
    put_file(path("model.safetensors.index.json"), fmt::format(R"({{"weight_map":{{{}}}}})", weight_map));
  }

  void expect_refused(const std::string& said, Code code = Code::kDataLoss) const {
    const auto reader = ModelReader::open(path("model.safetensors.index.json"));
    EXPECT_EQ(reader.status().code(), code) << reader.status().to_string();
    EXPECT_THAT(reader.status().message(), HasSubstr(said));
  }

  sim::TemporaryDirectory directory_;
};

std::vector<TensorSpec> twelve_kib_each(std::size_t count) {
  std::vector<TensorSpec> tensors;
  for (std::size_t i = 0; i < count; ++i)
    tensors.push_back({"layer." + std::to_string(i), DType::kF32, {3, 1024}});
  return tensors;
}

TEST_F(Model, ASmallOneIsOneFileWithoutAnIndex) {
  write(all_kinds());
  EXPECT_THAT(names(), ElementsAre("model.safetensors"));
  expect_holds(directory(), all_kinds());
  expect_holds(path("model.safetensors"), all_kinds());
}

TEST_F(Model, ALargeOneIsFilesWithinTheBoundAndAnIndex) {
  auto tensors = twelve_kib_each(3);
  for (const TensorSpec& tensor : all_kinds()) tensors.push_back(tensor);
  write(tensors);
  EXPECT_THAT(names(), ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                                   "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                                   "model.safetensors.index.json"));
  for (const std::string& name : names()) EXPECT_LE(std::filesystem::file_size(path(name)), kFileBytes);
  expect_holds(directory(), tensors);
  expect_holds(path("model.safetensors.index.json"), tensors);
}

TEST_F(Model, ATensorBeyondTheBoundHasAFileForItself) {
  const std::vector<TensorSpec> tensors = {{"a", DType::kU8, {10}},
                                           {"big", DType::kU8, {5 * kFileBytes}},
                                           {"empty", DType::kU8, {0}},
                                           {"z", DType::kU8, {10}}};
  write(tensors);
  EXPECT_EQ(names().size(), 4u);
  expect_holds(directory(), tensors);
}

TEST_F(Model, FilesOfEmptyTensorsAloneAreWritten) {
  const std::vector<TensorSpec> tensors = {
      {"a", DType::kU8, {0}}, {"b", DType::kU8, {0}}, {"c", DType::kU8, {1}}, {"d", DType::kU8, {0}}};
  write(tensors, 1);  // each in a file for itself
  EXPECT_EQ(names().size(), 5u);
  expect_holds(directory(), tensors);
}

TEST_F(Model, NothingIsLeftWithoutAnEnd) {
  {
    auto model = writer(twelve_kib_each(2));
    ASSERT_TRUE(model.ok());
    ASSERT_TRUE(append_all(*model).ok());
    EXPECT_THAT(names(), ElementsAre(kFirst, kSecond + ".sluice-draft"));
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Model, WhateverFailsLeavesNothing) {
  for (const long call : {SYS_pwrite64, SYS_fdatasync, SYS_renameat2, SYS_fsync, SYS_fallocate}) {
    const std::string said = sim::in_child([&]() -> std::string {
      std::string first;
      {
        auto model = writer(twelve_kib_each(2));
        if (!model.ok()) return model.status().to_string();
        if (!sim::refuse({{.call = call, .error = EIO}})) return "skip";
        const Status appended = append_all(*model);
        const Status finished = model->finish();
        first = (appended.ok() ? finished : appended).to_string();
      }
      return first + " left " + std::to_string(names().size());
    });
    if (said == "skip") GTEST_SKIP() << "no seccomp here";
    EXPECT_THAT(said, HasSubstr("IoError")) << call;
    EXPECT_THAT(said, HasSubstr("left 0")) << call;
  }
}

TEST_F(Model, AForkedChildTakesNothingAway) {
  std::optional<ModelWriter> model(writer(twelve_kib_each(2)).value());
  ASSERT_TRUE(append_all(*model).ok());
  EXPECT_EQ(sim::in_child([&] {
              model.reset();
              return std::string("ended");
            }),
            "ended");
  ASSERT_TRUE(model->finish().ok());
  expect_holds(directory(), twelve_kib_each(2));
}

TEST_F(Model, MissingBytesAreNamedAndNothingComesAfterTheEnd) {
  auto model = writer(twelve_kib_each(2));
  const Status status = model->finish();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("tensor \"layer.0\": 0 of 12288 bytes were given"));
  ASSERT_TRUE(append_all(*model).ok());
  ASSERT_TRUE(model->finish().ok());
  EXPECT_THAT(model->finish().message(), HasSubstr("already finished"));
  EXPECT_THAT(model->append("layer.0", bytes_of("x")).message(), HasSubstr("already finished"));
}

TEST_F(Model, ADirectoryWithAModelIsRefused) {
  for (const std::string& name :
       {std::string("model.safetensors"), std::string("model.safetensors.index.json"), kSecond}) {
    put_file(path(name), "");
    const auto model = writer(twelve_kib_each(2));
    EXPECT_EQ(model.status().code(), Code::kAlreadyExists);
    EXPECT_THAT(model.status().message(), HasSubstr(name));
    EXPECT_THAT(names(), ElementsAre(name));
    std::filesystem::remove(path(name));
  }
}

TEST_F(Model, WhatCannotBeDeclaredIsToldOfBeforeAnythingIsWritten) {
  auto tensors = twelve_kib_each(4);
  tensors.push_back(tensors[0]);
  EXPECT_THAT(writer(tensors).status().message(), HasSubstr("tensor \"layer.0\": declared twice"));
  tensors.back() = {"huge", DType::kF32, {std::uint64_t{1} << 62}};
  EXPECT_THAT(writer(tensors).status().message(), HasSubstr("tensor \"huge\""));
  EXPECT_EQ(writer(tensors).status().code(), Code::kInvalidArgument);
  tensors.back() = {"large", DType::kU8, {std::uint64_t{1} << 60}};
  EXPECT_EQ(writer(tensors).status().code(), Code::kNoSpace);
  EXPECT_THAT(writer(tensors).status().message(), HasSubstr("are available"));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Model, IndexAndFilesMustAgree) {
  put_file(path("f"), file_of(fmt::format("{{{}}}", entry("a")), "x"));
  put_file(path("g"), file_of(fmt::format("{{{}}}", entry("b")), "y"));
  put_index(R"("a":"f","b":"g")");
  EXPECT_TRUE(ModelReader::open(path("model.safetensors.index.json")).ok());

  put_index(R"("a":"f","b":"f")");
  expect_refused("/f: tensor \"b\": not in");
  put_index(R"("a":"f","b":"missing")");
  expect_refused("/missing", Code::kNotFound);
  put_index(R"("b":"../g")");
  expect_refused("is not the name of a file");
  put_file(path("g"), file_of(R"({"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                              "yz"));
  put_index(R"("a":"f","b":"g")");
  expect_refused("/g: tensor \"a\": also in \"f\"");
  put_index(R"("b":"g")");
  expect_refused("/g: tensor \"a\": not in");
  put_file(path("g"), "short");
  expect_refused("/g: truncated");
}

TEST_F(Model, ADirectoryMustSayWhichModelItHolds) {
  EXPECT_EQ(ModelReader::open(directory()).status().code(), Code::kNotFound);
  put_file(path("model.safetensors"), file_of("{}"));
  put_index("");
  EXPECT_EQ(ModelReader::open(directory()).status().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(ModelReader::open(path("model.safetensors")).ok());
  EXPECT_TRUE(ModelReader::open(path("model.safetensors.index.json")).ok());
}

TEST_F(Model, AMovedReaderStillFindsItsTensors) {
  write(twelve_kib_each(3));
  auto opened = ModelReader::open(directory());
  ASSERT_TRUE(opened.ok());
  const ModelReader moved = std::move(opened).value();
  for (const ModelReader::Tensor& tensor : moved.tensors()) {
    EXPECT_EQ(read_all(*tensor.file, *tensor.info), pattern(*tensor.info));
  }
}

}  // namespace
}  // namespace sluice::formats
