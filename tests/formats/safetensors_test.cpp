#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include <gmock/gmock.h>

#include "files.hpp"
#include "formats/safetensors_reader.hpp"
#include "formats/safetensors_writer.hpp"
#include "support/sim_world.hpp"

namespace sluice::formats {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Safetensors : public testing::Test {
 protected:
  std::string path(const std::string& name = "f.safetensors") const { return directory_.path() + "/" + name; }
  std::vector<std::string> names() const { return names_in(directory_.path()); }

  SafetensorsWriter writer(std::vector<TensorSpec> tensors, Metadata metadata = {}) const {
    auto writer = SafetensorsWriter::create(path(), std::move(tensors), std::move(metadata));
    EXPECT_TRUE(writer.ok()) << writer.status().to_string();
    return std::move(writer).value();
  }

  /// Writes every tensor's pattern in pieces of at most `piece` bytes.
  void write(std::vector<TensorSpec> tensors, Metadata metadata = {}, std::size_t piece = SIZE_MAX) const {
    SafetensorsWriter file = writer(std::move(tensors), std::move(metadata));
    for (const TensorInfo& tensor : file.tensors()) {
      const std::string bytes = pattern(tensor);
      for (std::size_t at = 0; at < bytes.size(); at += std::min(piece, bytes.size() - at)) {
        const Status status =
            file.append(tensor.name, bytes_of(bytes).subspan(at, std::min(piece, bytes.size() - at)));
        ASSERT_TRUE(status.ok()) << status.to_string();
      }
    }
    const Status status = file.finish();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  SafetensorsReader open() const {
    auto reader = SafetensorsReader::open(path());
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return std::move(reader).value();
  }

  Status why_refused(const std::string& bytes) const {
    put_file(path(), bytes);
    return SafetensorsReader::open(path()).status();
  }

  sim::TemporaryDirectory directory_;
};

TEST_F(Safetensors, EveryKindOfTensorComesBackAsItWas) {
  write(all_kinds(), {{"step", "7"}});
  const SafetensorsReader reader = open();
  EXPECT_EQ(reader.metadata(), (Metadata{{"step", "7"}}));
  ASSERT_EQ(reader.tensors().size(), all_kinds().size());
  for (const TensorSpec& tensor : all_kinds()) {
    const TensorInfo* found = reader.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->dtype, tensor.dtype);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(read_all(reader, *found), pattern(tensor)) << tensor.name;
  }
  EXPECT_THAT(names(), ElementsAre("f.safetensors"));
}

TEST_F(Safetensors, PiecesOfAnySizeMakeTheSameFile) {
  const std::vector<TensorSpec> tensors = {{"a", DType::kF32, {700, 1000}}, {"b", DType::kU8, {3}}};
  write(tensors);
  const std::string whole = get_file(path());
  for (const std::size_t piece : {std::size_t{977}, std::size_t{1} << 20, (std::size_t{1} << 20) + 1}) {
    std::filesystem::remove(path());
    write(tensors, {}, piece);
    EXPECT_EQ(get_file(path()), whole) << piece;
  }
}

TEST_F(Safetensors, NoTensorsMakeAFile) {
  write({});
  EXPECT_THAT(open().tensors(), IsEmpty());
  EXPECT_EQ(std::filesystem::file_size(path()), 4096u);
}

TEST_F(Safetensors, BytesLieAsTheFormatSays) {
  SafetensorsWriter file =
      writer({{"b", DType::kU8, {2}}, {"a", DType::kBF16, {1, 2}}, {"e", DType::kF32, {0}}}, {{"k", "v"}});
  ASSERT_TRUE(file.append("a", bytes_of("\x01\x02\x03\x04")).ok());
  ASSERT_TRUE(file.append("b", bytes_of("\x05\x06")).ok());
  ASSERT_TRUE(file.finish().ok());
  std::string header = R"({"__metadata__":{"k":"v"},"e":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
                       R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},)"
                       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[4,6]}})";
  header.resize(4088, ' ');
  EXPECT_EQ(get_file(path()), file_of(header, "\x01\x02\x03\x04\x05\x06"));
}

TEST_F(Safetensors, ReadsAFileMadeByHand) {
  put_file(path(), file_of(R"({"u":{"dtype":"U16","shape":[3],"data_offsets":[1,7]},)"
                           R"("s":{"dtype":"I8","shape":[],"data_offsets":[0,1]}})",
                           "\x7f\x01\x02\x03\x04\x05\x06"));
  const SafetensorsReader reader = open();
  EXPECT_EQ(read_all(reader, *reader.find("s")), "\x7f");
  std::string part(4, '\0');
  ASSERT_TRUE(reader.read(*reader.find("u"), {1, 2}, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_EQ(part, "\x03\x04\x05\x06");
}

TEST_F(Safetensors, RangesOutsideATensorAreRefused) {
  write({{"a", DType::kF32, {4}}, {"b", DType::kF32, {4}}});
  const SafetensorsReader reader = open();
  std::string target(64, '\0');
  const auto read = [&](Range range, std::size_t bytes) {
    return reader.read(*reader.find("a"), range, std::as_writable_bytes(std::span(target)).first(bytes));
  };
  EXPECT_TRUE(read({0, 4}, 16).ok());
  EXPECT_TRUE(read({4, 0}, 0).ok());
  for (const Range range :
       {Range{0, 5}, Range{4, 1}, Range{5, 0}, Range{~std::uint64_t{0}, 2}, Range{1, ~std::uint64_t{0}}}) {
    const Status status = read(range, 16);
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("f.safetensors: tensor \"a\": elements"));
  }
  EXPECT_THAT(read({0, 4}, 15).message(), HasSubstr("4 elements are 16 bytes, the target has 15"));
}

TEST_F(Safetensors, ATruncatedFileIsRefusedAtEveryLength) {
  const std::string bytes =
      file_of(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}   )", std::string(16, 'x'));
  ASSERT_TRUE(why_refused(bytes).ok());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    const Status status = why_refused(bytes.substr(0, length));
    ASSERT_EQ(status.code(), Code::kDataLoss) << length;
    EXPECT_THAT(status.message(), HasSubstr("f.safetensors")) << length;
    EXPECT_THAT(status.message(), HasSubstr("truncated")) << length;
  }
  EXPECT_EQ(why_refused(bytes + "x").code(), Code::kDataLoss);
}

TEST_F(Safetensors, AFlippedBitOfTheHeaderNeverReachesBeyondTheFile) {
  const std::string bytes =
      file_of(R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"U8","shape":[3],)"
              R"("data_offsets":[16,19]}})",
              std::string(19, 'x'));
  for (std::size_t bit = 0; bit < (bytes.size() - 19) * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    put_file(path(), flipped);
    const auto reader = SafetensorsReader::open(path());
    if (!reader.ok()) continue;  // a letter of a name may differ, or a dtype of the same size
    std::uint64_t total_bytes = 0;
    for (const TensorInfo& tensor : reader->tensors()) total_bytes += read_all(*reader, tensor).size();
    EXPECT_EQ(total_bytes, 19u) << "bit " << bit;
  }
}

TEST_F(Safetensors, AFileThatShrinksUnderneathIsToldOf) {
  write({{"a", DType::kF32, {4}}});
  const SafetensorsReader reader = open();
  ASSERT_EQ(::truncate(path().c_str(), 4100), 0);
  std::string target(16, '\0');
  const Status status = reader.read(reader.tensors()[0], {0, 4}, std::as_writable_bytes(std::span(target)));
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("tensor \"a\""));
}

TEST_F(Safetensors, OnlyRegularFilesAreRead) {
  EXPECT_EQ(SafetensorsReader::open(path()).status().code(), Code::kNotFound);
  EXPECT_EQ(SafetensorsReader::open("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SafetensorsReader::open(path() + std::string("\0x", 2)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SafetensorsReader::open(directory_.path()).status().code(), Code::kFailedPrecondition);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(SafetensorsReader::open(path("pipe")).status().code(), Code::kFailedPrecondition);
}

TEST_F(Safetensors, AHugeHeaderLengthAllocatesNothing) {
  std::string bytes = file_of("{}");
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = '\xff';
  EXPECT_THAT(why_refused(bytes).message(), HasSubstr("at most 100000000"));
}

TEST_F(Safetensors, ALinkLeadsToItsFile) {
  write({{"a", DType::kU8, {2}}});
  std::filesystem::create_symlink("f.safetensors", path("link"));
  EXPECT_TRUE(SafetensorsReader::open(path("link")).ok());
}

TEST_F(Safetensors, NothingHasTheNameBeforeTheEnd) {
  {
    SafetensorsWriter file = writer({{"a", DType::kU8, {2}}});
    ASSERT_TRUE(file.append("a", bytes_of("x")).ok());
    EXPECT_FALSE(std::filesystem::exists(path()));
    const Status status = file.finish();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("tensor \"a\": 1 of 2 bytes were given"));
  }
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Safetensors, MissingBytesMayStillBeGivenAndNothingAfterTheEnd) {
  SafetensorsWriter file = writer({{"a", DType::kU8, {2}}});
  EXPECT_FALSE(file.finish().ok());
  ASSERT_TRUE(file.append("a", bytes_of("xy")).ok());
  EXPECT_EQ(file.append("a", bytes_of("z")).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(file.finish().ok());
  EXPECT_THAT(file.finish().message(), HasSubstr("already finished"));
  EXPECT_THAT(file.append("a", bytes_of("z")).message(), HasSubstr("already finished"));
}

TEST_F(Safetensors, BytesOutOfTurnAreRefusedAndNotWritten) {
  SafetensorsWriter file = writer({{"a", DType::kF32, {1}}, {"b", DType::kU8, {1}}});
  EXPECT_THAT(file.append("b", bytes_of("x")).message(),
              HasSubstr("tensor \"b\": byte 0 of tensor \"a\" is due"));
  EXPECT_THAT(file.append("a", bytes_of("12345")).message(), HasSubstr("5 bytes more, 4 are missing of 4"));
  ASSERT_TRUE(file.append("a", bytes_of("1234")).ok());
  ASSERT_TRUE(file.append("b", bytes_of("5")).ok());
  ASSERT_TRUE(file.finish().ok());
  EXPECT_EQ(read_all(open(), *open().find("a")), "1234");
}

TEST_F(Safetensors, SayWhatCannotBeDeclared) {
  const auto status =
      SafetensorsWriter::create(path(), {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}, {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("f.safetensors: tensor \"a\": declared twice"));
  EXPECT_EQ(SafetensorsWriter::create(directory_.path() + "/", {}, {}).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(SafetensorsWriter::create(path("none/f"), {}, {}).status().code(), Code::kNotFound);
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Safetensors, RandomModelsComeBackAsTheyWere) {
  const std::uint64_t seed = sim::seed_or(std::random_device{}());
  SCOPED_TRACE("SLUICE_TEST_SEED=" + std::to_string(seed));
  sim::SimWorld random(seed);
  for (int round = 0; round < 20; ++round) {
    std::vector<TensorSpec> tensors(random.below(20));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      tensors[i].name = std::string(random.below(4), '/') + std::to_string(i);
      tensors[i].dtype = kEveryDType[random.below(std::size(kEveryDType))];
      tensors[i].shape.resize(random.below(4));
      for (std::uint64_t& extent : tensors[i].shape) extent = random.below(12);
    }
    write(tensors, {}, 1 + random.below(300));
    const SafetensorsReader reader = open();
    ASSERT_EQ(reader.tensors().size(), tensors.size());
    for (const TensorSpec& tensor : tensors) {
      const TensorInfo& found = *reader.find(tensor.name);
      EXPECT_EQ(found.shape, tensor.shape);
      EXPECT_EQ(read_all(reader, found), pattern(tensor));
    }
    std::filesystem::remove(path());
  }
}

}  // namespace
}  // namespace sluice::formats
