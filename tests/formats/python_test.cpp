#include <fmt/format.h>

#include <map>
#include <sstream>

#include <gmock/gmock.h>

#include "files.hpp"
#include "formats/model_reader.hpp"
#include "formats/model_writer.hpp"
#include "support/shell.hpp"

namespace sluice::formats {
namespace {

using sim::run_in_shell;
using Answer = sim::ShellAnswer;

std::string hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text.empty() ? "-" : text;
}

/// A line for each tensor, as the script prints them.
std::string show(const std::map<std::string, std::pair<TensorSpec, std::string>>& tensors) {
  std::string text;
  for (const auto& [name, tensor] : tensors) {
    text +=
        fmt::format("{} {} {} {}\n", name, dtype_name(tensor.first.dtype),
                    tensor.first.shape.empty() ? "-" : fmt::format("{}", fmt::join(tensor.first.shape, ",")),
                    hex(tensor.second));
  }
  return text;
}

/// Another's reading and writing of the format: by its description ("plain"), or by its own library.
class Python : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Answer python = run_in_shell("python3 -c 'import sys; assert sys.version_info >= (3, 6)'");
    if (!python.ok) GTEST_SKIP() << "no python3: " << python.text;
    if (GetParam() == std::string("plain")) return;
    const Answer library = script("probe", "");
    if (!library.ok) GTEST_SKIP() << "its library cannot be used: " << library.text;
  }

  Answer script(const std::string& action, const std::string& path) const {
    return run_in_shell(fmt::format("PYTHONIOENCODING=utf-8 python3 '{}/plain_safetensors.py' {} {} '{}'",
                                    SLUICE_SOURCE_DIR, GetParam(), action, path));
  }

  static std::vector<TensorSpec> tensors() {
    std::vector<TensorSpec> kinds = all_kinds();
    kinds.back().name = "é漢";  // the script prints names as they are
    return kinds;
  }

  static std::string shown() {
    std::map<std::string, std::pair<TensorSpec, std::string>> expected;
    for (const TensorSpec& tensor : tensors()) expected[tensor.name] = {tensor, pattern(tensor)};
    return show(expected);
  }

  sim::TemporaryDirectory directory_;
};

TEST_P(Python, ReadsWhatWeWrite) {
  const std::string path = directory_.path() + "/f.safetensors";
  auto writer = SafetensorsWriter::create(path, tensors(), {{"made", "by us"}});
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  for (const TensorInfo& tensor : writer->tensors()) {
    ASSERT_TRUE(writer->append(tensor.name, bytes_of(pattern(tensor))).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
  const Answer answer = script("read", path);
  EXPECT_TRUE(answer.ok);
  EXPECT_EQ(answer.text, shown() + "made=by us\n");
}

TEST_P(Python, ReadsTheModelsThatWeWrite) {
  auto writer = ModelWriter::create(directory_.path(), tensors(), {}, {.max_file_bytes = 1});
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  for (const TensorSpec& tensor : writer->tensors()) {
    ASSERT_TRUE(writer->append(tensor.name, bytes_of(pattern(tensor))).ok());
  }
  ASSERT_TRUE(writer->finish().ok());
  const Answer answer = script("read-model", directory_.path());
  EXPECT_TRUE(answer.ok);
  EXPECT_EQ(answer.text, shown());
}

TEST_P(Python, WritesWhatWeRead) {
  const std::string path = directory_.path() + "/f.safetensors";
  const Answer answer = script("write", path);
  ASSERT_TRUE(answer.ok) << answer.text;
  const auto reader = SafetensorsReader::open(path);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  std::map<std::string, std::pair<TensorSpec, std::string>> found;
  for (const TensorInfo& tensor : reader->tensors()) found[tensor.name] = {tensor, read_all(*reader, tensor)};
  EXPECT_EQ(found.size(), 15u);
  EXPECT_EQ(show(found), answer.text);
  EXPECT_EQ(reader->metadata(), (Metadata{{"made", "by python"}}));
}

INSTANTIATE_TEST_SUITE_P(Format, Python, testing::Values("plain", "library"),
                         [](const testing::TestParamInfo<const char*>& by) { return by.param; });

}  // namespace
}  // namespace sluice::formats
