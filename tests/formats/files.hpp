#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "formats/safetensors_reader.hpp"
#include "formats/tensors.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::formats {

inline constexpr DType kEveryDType[] = {DType::kBool, DType::kU8,   DType::kI8,  DType::kU16, DType::kI16,
                                        DType::kF16,  DType::kBF16, DType::kU32, DType::kI32, DType::kF32,
                                        DType::kU64,  DType::kI64,  DType::kF64};

/// A safetensors file with this header and this data, whatever they are.
inline std::string file_of(const std::string& header, const std::string& data = "") {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return bytes + header + data;
}

inline void put_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string get_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Bytes that tell tensors and places apart: 0 and 1 for booleans.
inline std::string pattern(const TensorSpec& tensor) {
  std::string bytes(tensor_bytes(tensor).value(), '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t value = i * 7 + i / 251 + tensor.name.size() * 31;
    bytes[i] = static_cast<char>(tensor.dtype == DType::kBool ? value % 2 : value % 256);
  }
  return bytes;
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

inline std::string read_all(const SafetensorsReader& reader, const TensorInfo& tensor) {
  std::string bytes(tensor.bytes, '\0');
  const Status status = reader.read(tensor, {0, tensor.elements()}, std::as_writable_bytes(std::span(bytes)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

/// Sorted names of what is in a directory.
inline std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// Every dtype, and a scalar, an empty tensor and a name that JSON must escape.
inline std::vector<TensorSpec> all_kinds() {
  std::vector<TensorSpec> tensors;
  for (const DType dtype : kEveryDType)
    tensors.push_back({"t." + std::string(dtype_name(dtype)), dtype, {3, 5}});
  tensors.push_back({"scalar", DType::kF32, {}});
  tensors.push_back({"empty", DType::kBF16, {0, 8}});
  tensors.push_back({"odd \"name\"\n\\ é 漢", DType::kU8, {7}});
  return tensors;
}

}  // namespace sluice::formats
