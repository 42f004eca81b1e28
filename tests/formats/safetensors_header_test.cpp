#include "formats/safetensors_header.hpp"

#include <gmock/gmock.h>

#include <array>

#include "files.hpp"
#include "formats/safetensors_layout.hpp"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<Header> parse(const std::string& text, std::uint64_t data_bytes) {
  return parse_header(text, kHeaderLengthBytes + text.size() + data_bytes, "dir/f.safetensors");
}

Status why_refused(const std::string& text, std::uint64_t data_bytes = 0) {
  const Result<Header> header = parse(text, data_bytes);
  EXPECT_FALSE(header.ok()) << text;
  EXPECT_THAT(header.status().message(), HasSubstr("dir/f.safetensors"));
  return header.status();
}

void expect_refused(const std::string& text, std::uint64_t data_bytes, const std::string& said,
                    Code code = Code::kDataLoss) {
  const Status status = why_refused(text, data_bytes);
  EXPECT_EQ(status.code(), code) << text;
  EXPECT_THAT(status.message(), HasSubstr(said)) << text;
}

/// One tensor "a" with these fields.
std::string tensor_a(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

TEST(SafetensorsHeader, SaysWhatTheFileHolds) {
  const auto header =
      parse(R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt"},)"
            R"("a":{"data_offsets":[0,4],"shape":[],"dtype":"F32"}}  )",
            16);
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  ASSERT_EQ(header->tensors.size(), 2u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[0].elements(), 1u);
  EXPECT_THAT(header->tensors[0].shape, ElementsAre());
  EXPECT_EQ(header->tensors[1].dtype, DType::kBF16);
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[1].offset, 4u);
  EXPECT_EQ(header->tensors[1].bytes, 12u);
  EXPECT_EQ(header->find("b"), &header->tensors[1]);
  EXPECT_EQ(header->find("c"), nullptr);
  EXPECT_EQ(header->metadata, (Metadata{{"format", "pt"}}));
}

TEST(SafetensorsHeader, TakesEmptyTensorsWhereverTheyLie) {
  const auto header = parse(R"({"z":{"dtype":"F32","shape":[0,8],"data_offsets":[0,0]},)"
                            R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                            R"("y":{"dtype":"F64","shape":[8,0],"data_offsets":[2,2]}})",
                            2);
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  EXPECT_EQ(header->find("z")->elements(), 0u);
}

TEST(SafetensorsHeader, AnExtentOfZeroMakesATensorEmptyWhateverTheOthersAre) {
  for (const std::string shape : {"[1099511627776,1099511627776,0]", "[0,1099511627776,1099511627776]"}) {
    const auto header = parse(tensor_a(R"("dtype":"F32","data_offsets":[0,0],"shape":)" + shape), 0);
    ASSERT_TRUE(header.ok()) << header.status().to_string();
    EXPECT_EQ(header->find("a")->elements(), 0u);
    EXPECT_EQ(header->find("a")->shape.size(), 3u);
  }
}

TEST(SafetensorsHeader, TakesNoTensors) {
  EXPECT_TRUE(parse("{}", 0).ok());
  EXPECT_TRUE(parse("{}      ", 0).ok());
  EXPECT_TRUE(parse(R"({"__metadata__":{}})", 0).ok());
}

TEST(SafetensorsHeader, LengthIsBoundedBeforeAnythingIsAllocated) {
  const auto length = [](std::uint64_t value, std::uint64_t file_bytes) {
    std::array<std::byte, 8> bytes;
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    return parse_header_length(bytes, file_bytes, "f");
  };
  EXPECT_EQ(*length(100'000'000, 100'000'008), 100'000'000u);
  EXPECT_EQ(*length(2, 10), 2u);
  EXPECT_THAT(length(100'000'001, 1u << 30).status().message(), HasSubstr("at most 100000000"));
  EXPECT_THAT(length(~std::uint64_t{0}, 100).status().message(), HasSubstr("18446744073709551615"));
  EXPECT_THAT(length(3, 10).status().message(), HasSubstr("truncated"));
  EXPECT_FALSE(length(0, 7).ok());
}

TEST(SafetensorsHeader, RefusesWhatIsNoObjectWithSpacesBehind) {
  expect_refused("", 0, "does not begin with {");
  expect_refused(" {}", 0, "does not begin with {");
  expect_refused("\xef\xbb\xbf{}", 0, "does not begin with {");
  expect_refused("[]", 0, "does not begin with {");
  expect_refused("{}\n", 0, "does not end with } and spaces");
  expect_refused(std::string("{}\0", 3), 0, "does not end with }");
  expect_refused(std::string("{}\0{}", 5), 0, "NUL at byte 2");
  expect_refused("{}{}", 0, "not JSON at byte 3");
  expect_refused("{", 0, "does not end");
  expect_refused("{\"a\":}", 0, "not JSON at byte");
  expect_refused("{\"\xff\":{}}", 0, "not JSON at byte");
}

TEST(SafetensorsHeader, RefusesEveryKeyGivenTwice) {
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],)"
                 R"("data_offsets":[1,2]}})",
                 2, "tensor \"a\": given twice");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"\u0061":{"dtype":"U8","shape":[0],)"
                 R"("data_offsets":[1,1]}})",
                 1, "tensor \"a\": given twice");
  expect_refused(R"({"__metadata__":{"k":"1","k":"1"}})", 0, "key is given twice");
  expect_refused(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__: given twice");
  for (const std::string field : {R"("dtype":"U8")", R"("shape":[1])", R"("data_offsets":[0,1])"}) {
    expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],)" + field), 1,
                   "is given twice");
  }
}

TEST(SafetensorsHeader, RefusesMissingAndUnknownFields) {
  expect_refused(tensor_a(R"("shape":[1],"data_offsets":[0,1])"), 1, "tensor \"a\": has no dtype");
  expect_refused(tensor_a(R"("dtype":"U8","data_offsets":[0,1])"), 1, "tensor \"a\": has no shape");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1])"), 1, "tensor \"a\": has no data_offsets");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1])"), 1,
                 "tensor \"a\": unknown field \"strides\"");
}

TEST(SafetensorsHeader, RefusesValuesOfAnotherKind) {
  for (const std::string value : {"null", "true", "1", "\"x\"", "[]", "[1]", "{\"b\":{}}"}) {
    EXPECT_EQ(why_refused("{\"a\":" + value + "}").code(), Code::kDataLoss) << value;
    EXPECT_EQ(why_refused(tensor_a("\"shape\":" + (value[0] == '[' ? "{}" : value))).code(), Code::kDataLoss);
    EXPECT_EQ(why_refused(tensor_a("\"dtype\":" + (value[0] == '"' ? "[]" : value))).code(), Code::kDataLoss);
    EXPECT_EQ(why_refused(tensor_a("\"data_offsets\":" + value)).code(), Code::kDataLoss) << value;
    EXPECT_EQ(why_refused("{\"__metadata__\":" + (value[0] == '{' ? "[]" : value) + "}").code(),
              Code::kDataLoss);
    EXPECT_EQ(why_refused("{\"__metadata__\":{\"k\":" + (value[0] == '"' ? "{}" : value) + "}}").code(),
              Code::kDataLoss);
  }
  for (const std::string number :
       {"-1", "-0", "1.0", "1e2", "18446744073709551616", "true", "\"1\"", "[1]"}) {
    EXPECT_THAT(why_refused(tensor_a("\"shape\":[" + number + "]")).message(), HasSubstr("tensor \"a\""));
    EXPECT_THAT(why_refused(tensor_a("\"data_offsets\":[0," + number + "]")).message(),
                HasSubstr("tensor \"a\""));
  }
}

TEST(SafetensorsHeader, RefusesAnyNestingAtOnce) {
  const std::string deep(100000, '[');
  expect_refused(tensor_a("\"shape\":" + deep), 0, "an array where it may not be");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  expect_refused(objects + "}", 0, "tensor \"a\"");
}

TEST(SafetensorsHeader, RefusesUnsupportedDTypesByName) {
  for (const std::string dtype : {"F8_E4M3", "F8_E5M2", "F4", "C64", "bf16", ""}) {
    expect_refused(tensor_a("\"dtype\":\"" + dtype + "\",\"shape\":[1],\"data_offsets\":[0,1]"), 1,
                   "tensor \"a\": dtype \"" + dtype + "\" is not supported", Code::kUnimplemented);
  }
}

TEST(SafetensorsHeader, RefusesSizesThatOverflowOrDisagree) {
  expect_refused(tensor_a(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])"), 0,
                 "more bytes than 64 bits count");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
                 "more bytes than 64 bits count");
  expect_refused(tensor_a(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
                 "tensor \"a\": F32 [2] has 8 bytes, data_offsets are [0, 4]");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), 1, "data_offsets are [1, 0]");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,0])"), 1,
                 "tensor \"a\"");
  expect_refused(
      tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[18446744073709551614,18446744073709551615])"), 1,
      "a hole");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1, "data_offsets of 1 numbers");
  expect_refused(tensor_a(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])"), 1, "more than two numbers");
}

TEST(SafetensorsHeader, BoundsTheDimensions) {
  const auto ones = [](std::size_t count) {
    std::string shape = "1";
    for (std::size_t i = 1; i < count; ++i) shape += ",1";
    return tensor_a("\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]");
  };
  EXPECT_TRUE(parse(ones(kRankMax), 1).ok());
  expect_refused(ones(kRankMax + 1), 1, "more than 64 dimensions", Code::kUnimplemented);
}

TEST(SafetensorsHeader, RefusesABufferThatIsNotCoveredOnce) {
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}";
  };
  EXPECT_TRUE(parse(two("[4,8]", "[0,4]"), 8).ok());
  expect_refused(two("[0,4]", "[3,7]"), 7,
                 "tensor \"b\": begins at byte 3 of the data, the tensor before ends at 4: an "
                 "overlap");
  expect_refused(two("[0,4]", "[0,4]"), 4, "an overlap");
  expect_refused(two("[0,4]", "[5,9]"), 9, "a hole");
  expect_refused(two("[1,5]", "[5,9]"), 9, "tensor \"a\": begins at byte 1");
  expect_refused(two("[0,4]", "[4,8]"), 7,
                 "tensor \"b\", the last, ends at byte 8 of the data, the file holds 7 bytes");
  expect_refused(two("[0,4]", "[4,8]"), 9, "bytes that belong to none");
  expect_refused("{}", 1, "bytes that belong to none");
}

TEST(SafetensorsHeader, RefusesATruncatedTextAtEveryLength) {
  const std::string text =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"__metadata__":{"k":"v"}})";
  ASSERT_TRUE(parse(text, 1).ok());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes)
    EXPECT_EQ(why_refused(text.substr(0, bytes), 1).code(), Code::kDataLoss);
}

TEST(SafetensorsHeader, MessagesStayShortAndPrintable) {
  const std::string name(100000, 'n');
  EXPECT_LT(why_refused("{\"" + name + "\":1}").message().size(), 1000u);
  EXPECT_EQ(in_quotes("a\nb\"c\\"), "\"a\\x0ab\\x22c\\x5c\"");
  EXPECT_EQ(in_quotes(std::string(199, 'x') + "é"), "\"" + std::string(199, 'x') + "…\"");
}

TEST(SafetensorsLayout, EveryTensorIsAlignedAndTheDataStartsOnAPage) {
  const auto layout = lay_out(all_kinds(), {{"k", "v"}});
  ASSERT_TRUE(layout.ok()) << layout.status().to_string();
  EXPECT_EQ(layout->header.buffer_offset % 4096, 0u);
  EXPECT_EQ(layout->front.size(), layout->header.buffer_offset);
  for (const TensorInfo& tensor : layout->header.tensors)
    EXPECT_EQ(tensor.offset % dtype_bytes(tensor.dtype), 0u);
}

TEST(SafetensorsLayout, ComesBackAsItWasDeclared) {
  const auto layout = lay_out(all_kinds(), {{"k \"\n", "v é"}, {"", ""}});
  ASSERT_TRUE(layout.ok());
  const std::string text = layout->front.substr(8);
  const auto header = parse(text, layout->header.buffer_bytes);
  ASSERT_TRUE(header.ok()) << header.status().to_string();
  EXPECT_EQ(header->metadata, layout->header.metadata);
  ASSERT_EQ(header->tensors.size(), all_kinds().size());
  for (const TensorSpec& tensor : all_kinds()) {
    const TensorInfo* found = header->find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->offset, layout->header.find(tensor.name)->offset);
  }
}

TEST(SafetensorsLayout, RefusesWhatNoFileCanHold) {
  const auto refused = [](std::vector<TensorSpec> tensors, Metadata metadata, const std::string& said) {
    const auto layout = lay_out(std::move(tensors), std::move(metadata));
    EXPECT_EQ(layout.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(layout.status().message(), HasSubstr(said));
  };
  refused({{"a", DType::kU8, {1}}, {"a", DType::kF32, {1}}}, {}, "tensor \"a\": declared twice");
  refused({{"__metadata__", DType::kU8, {1}}}, {}, "reserved");
  refused({{"\xff", DType::kU8, {1}}}, {}, "not UTF-8");
  refused({}, {{"k", "\xff"}}, "metadata \"k\": not UTF-8");
  refused({{"a", DType::kF64, {std::uint64_t{1} << 62}}}, {}, "tensor \"a\": F64 [4611686018427387904]");
  refused({{"a", DType::kU8, {std::uint64_t{1} << 62}}, {"b", DType::kU8, {std::uint64_t{1} << 62}}}, {},
          "tensor \"b\"");
  refused({{"a", DType::kU8, std::vector<std::uint64_t>(65, 1)}}, {}, "65 dimensions");
  refused({}, {{"k", std::string(100'000'000, 'x')}}, "at most 100000000 bytes of header");
}

TEST(SafetensorsLayout, SizeIsNeverAboveItsBound) {
  std::vector<TensorSpec> tensors;
  std::uint64_t entries_bytes = 0, data_bytes = 0;
  const Metadata metadata = {{"k\x01", "v\x02"}};
  for (std::size_t i = 0; i < 200; ++i) {
    tensors.push_back({std::string(i, '\x01'), DType::kBF16, std::vector<std::uint64_t>(i % 5, 1000)});
    entries_bytes += entry_bytes_max(tensors.back());
    data_bytes += tensor_bytes(tensors.back()).value();
    const auto layout = lay_out(tensors, metadata);
    ASSERT_TRUE(layout.ok());
    EXPECT_LE(layout->header.buffer_offset + layout->header.buffer_bytes,
              file_bytes_max(data_bytes, entries_bytes, metadata));
  }
}

}  // namespace
}  // namespace sluice::formats
