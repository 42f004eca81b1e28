#include "formats/safetensors_index.hpp"

#include <gmock/gmock.h>

namespace sluice::formats {
namespace {

using testing::HasSubstr;

void expect_refused(const std::string& text, const std::string& said) {
  const auto index = parse_index(text, "dir/i.json");
  EXPECT_EQ(index.status().code(), Code::kDataLoss) << text;
  EXPECT_THAT(index.status().message(), HasSubstr("dir/i.json")) << text;
  EXPECT_THAT(index.status().message(), HasSubstr(said)) << text;
}

TEST(SafetensorsIndex, ComesBackAsItWas) {
  const ModelIndex index{
      {{"a\"\n", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}}, 12};
  const auto text = encode_index(index);
  ASSERT_TRUE(text.ok());
  const auto parsed = parse_index(*text, "i.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, index);
  const ModelIndex none;
  EXPECT_EQ(*parse_index(*encode_index(none), "i.json"), none);
}

TEST(SafetensorsIndex, LiesAsOthersReadIt) {
  EXPECT_EQ(*encode_index({{{"a", "f"}, {"b", "g"}}, 12}), R"({
  "metadata": {
    "total_size": 12
  },
  "weight_map": {
    "a": "f",
    "b": "g"
  }
}
)");
  EXPECT_EQ(encode_index({{{"\xff", "f"}}, 0}).status().code(), Code::kInvalidArgument);
}

TEST(SafetensorsIndex, PassesOverOtherMetadata) {
  const auto index =
      parse_index(R"({"weight_map":{"a":"f"},"metadata":{"x":null,"y":[1,-2,3.5,{"total_size":3}],)"
                  R"("total_size":7,"z":true}})",
                  "i");
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  EXPECT_EQ(index->total_size, 7u);
  EXPECT_EQ(index->weight_map.at("a"), "f");
  EXPECT_EQ(parse_index(R"({"metadata":{"total_size":7.0},"weight_map":{}})", "i")->total_size, std::nullopt);
  EXPECT_EQ(parse_index(R"({"metadata":{"total_size":[7]},"weight_map":{}})", "i")->total_size, std::nullopt);
}

TEST(SafetensorsIndex, RefusesFilesElsewhere) {
  for (const std::string file : {"../f", "/f", "d/f", "..", ".", "", "f\\u0000g"}) {
    expect_refused(R"({"weight_map":{"a":")" + file + R"("}})", "tensor \"a\": ");
  }
}

TEST(SafetensorsIndex, RefusesWhatItIsNot) {
  expect_refused("", "not JSON");
  expect_refused("[]", "an array where it may not be");
  expect_refused("{}", "has no weight_map");
  expect_refused(R"({"weight_map":{},"weights":{}})", "unknown field \"weights\"");
  expect_refused(R"({"weight_map":[]})", "weight_map: an array");
  expect_refused(R"({"weight_map":{"a":1}})", "tensor \"a\": the number 1");
  expect_refused(R"({"weight_map":{"a":{}}})", "tensor \"a\": an object");
  expect_refused(R"({"weight_map":{"a":"f","a":"f"}})", "given twice");
  expect_refused(R"({"weight_map":{},"weight_map":{}})", "weight_map is given twice");
  expect_refused(R"({"metadata":{},"metadata":{}})", "metadata is given twice");
  expect_refused(R"({"metadata":{"total_size":1,"total_size":1}})", "total_size is given twice");
  expect_refused(R"({"metadata":1})", "metadata: the number 1");
  expect_refused("{\"metadata\":[]}", "metadata: an array");
  expect_refused("{\"metadata\":{\"x\":" + std::string(1000, '['), "nested more than 16 deep");
  expect_refused(std::string("{\"weight_map\":{}}\0x", 18), "NUL");
}

TEST(SafetensorsIndex, RefusesATruncatedTextAtEveryLength) {
  const std::string text = R"({"metadata":{"total_size":1},"weight_map":{"a":"f"}})";
  ASSERT_TRUE(parse_index(text, "i").ok());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_FALSE(parse_index(text.substr(0, bytes), "i").ok());
}

}  // namespace
}  // namespace sluice::formats
