#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "store/store_reader.hpp"
#include "stored_world.hpp"
#include "support/temporary_directory.hpp"

namespace sluice::store {

/// What verify() found.
struct Verdict {
  std::vector<BadPlane> bad;
  std::uint64_t bytes_heard = 0;
};

class StoreReaderTest : public testing::Test {
 protected:
  StoredWorld world(WorldOptions options) { return {temporary_.path(), options}; }

  static Result<std::unique_ptr<StoreReader>> try_open(const StoredWorld& world,
                                                       std::uint32_t near_rank = 0) {
    return StoreReader::open(
        world.find(),
        {.store_id = world.options().store_id, .commit = world.options().commit, .near_rank = near_rank});
  }
  static std::unique_ptr<StoreReader> opened(const StoredWorld& world, std::uint32_t near_rank = 0) {
    auto reader = try_open(world, near_rank);
    EXPECT_TRUE(reader.ok()) << reader.status().to_string();
    return reader.ok() ? std::move(*reader) : nullptr;
  }

  static Verdict verified(StoreReader& reader) {
    Verdict verdict;
    const Status status = reader.verify([&](const BadPlane& bad) { verdict.bad.push_back(bad); },
                                        [&](std::uint64_t bytes) {
                                          EXPECT_GE(bytes, verdict.bytes_heard);
                                          verdict.bytes_heard = bytes;
                                          return Status();
                                        });
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(verdict.bytes_heard, reader.state_bytes());
    return verdict;
  }

  static Result<std::vector<std::byte>> read(StoreReader& reader, const std::string& name, Plane plane,
                                             Range range) {
    const std::uint32_t parameter = reader.find(name).value();
    const auto& planes = reader.parameters()[parameter].planes;
    const auto format = std::ranges::find(planes, plane, &PlaneFormat::plane);
    std::vector<std::byte> bytes(format->bytes(range.count), std::byte{0xcd});
    SLUICE_RETURN_IF_ERROR(reader.read(parameter, plane, range, bytes.data()));
    return bytes;
  }

  /// A range of a plane against the plain array, from the last whole value before it on.
  static void expect_equal(StoreReader& reader, StoredWorld& world, const StoredParameter& parameter,
                           const PlaneFormat& plane, Range range, std::uint64_t values = 0) {
    const std::uint64_t before = range.first % plane.elements_per_value;
    range = {range.first - before, range.count == 0 ? 0 : range.count + before};
    const auto bytes = read(reader, parameter.name, plane.plane, range);
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    const std::vector<std::byte>& whole = world.values(parameter, plane, values);
    if (range.count == 0) return;
    EXPECT_EQ(std::memcmp(bytes->data(), whole.data() + plane.bytes(range.first), bytes->size()), 0)
        << parameter.name << ", " << plane_name(plane.plane) << ", " << range.count << " from "
        << range.first;
  }

  sim::TemporaryDirectory temporary_;
};

/// Classes of four, three and one planes, a parameter tied to another.
inline StoredWorld::Model small_model() {
  return {.parameters = {{.name = "embedding", .shape = {300, 100}, .group = 0},
                         {.name = "norm", .shape = {700}, .group = 1, .policy = Policy::kFp32},
                         {.name = "out", .shape = {9000}, .group = 0},
                         {.name = "table",
                          .shape = {40000},
                          .group = 2,
                          .policy = Policy::kFrozen,
                          .frozen_dtype = DType::kU8}},
          .aliases = {{"head", 0}}};
}

/// The same beside a class of every other policy, of rules that keep one moment and both.
inline StoredWorld::Model model_of_all_policies() {
  StoredWorld::Model model = small_model();
  model.parameters.push_back({.name = "coded", .shape = {40, 1000}, .group = 3, .policy = Policy::kMoments8});
  model.parameters.push_back({.name = "half", .shape = {300}, .group = 4, .policy = Policy::kFp16Master});
  model.parameters.push_back(
      {.name = "rounded", .shape = {257}, .group = 5, .policy = Policy::kBf16Moments, .optimizer = 2});
  model.parameters.push_back(
      {.name = "sign", .shape = {20'000}, .group = 6, .policy = Policy::kMoments8, .optimizer = 3});
  return model;
}

}  // namespace sluice::store
