#include "store/catalog.hpp"

#include <fmt/format.h>

#include "store/bytes.hpp"

namespace sluice::store {
namespace {

constexpr std::size_t kHeaderBytes = 16;     // four counts
constexpr std::size_t kParameterBytes = 24;  // without its dimensions and name
constexpr std::size_t kAliasBytes = 8;       // without its name
constexpr std::size_t kChunkBytes = 12;
constexpr std::size_t kRunBytes = 32;

template <class T>
std::uint32_t count_of(const std::vector<T>& items) {
  return static_cast<std::uint32_t>(items.size());
}

std::size_t bytes_of(const Catalog& catalog) {
  std::size_t bytes = kHeaderBytes + catalog.chunks.size() * kChunkBytes + catalog.runs.size() * kRunBytes;
  for (const StoredParameter& parameter : catalog.parameters)
    bytes += kParameterBytes + parameter.shape.size() * sizeof(std::int64_t) + parameter.name.size();
  for (const StoredAlias& alias : catalog.aliases) bytes += kAliasBytes + alias.name.size();
  return bytes;
}

void put(ByteWriter& writer, const StoredParameter& parameter) {
  writer.put(static_cast<std::uint32_t>(parameter.name.size()));
  writer.put(count_of(parameter.shape));
  writer.put(parameter.group);
  writer.put(parameter.rank);
  writer.put(parameter.world);
  writer.put(static_cast<std::uint8_t>(parameter.policy));
  writer.put(parameter.optimizer);
  writer.put(static_cast<std::uint8_t>(parameter.frozen_dtype));
  writer.put(static_cast<std::uint8_t>(parameter.gradient));
  for (const std::int64_t extent : parameter.shape) writer.put(static_cast<std::uint64_t>(extent));
  writer.put(parameter.name);
}

StoredParameter get_parameter(ByteReader& reader) {
  StoredParameter parameter;
  const auto name_bytes = reader.get<std::uint32_t>();
  const auto dimensions = reader.get<std::uint32_t>();
  parameter.group = reader.get<std::uint32_t>();
  parameter.rank = reader.get<std::uint32_t>();
  parameter.world = reader.get<std::uint32_t>();
  parameter.policy = static_cast<Policy>(reader.get<std::uint8_t>());
  parameter.optimizer = reader.get<std::uint8_t>();
  parameter.frozen_dtype = static_cast<DType>(reader.get<std::uint8_t>());
  parameter.gradient = static_cast<GradientStorage>(reader.get<std::uint8_t>());
  // Taken before they are counted, so that only as many are allocated as there are.
  ByteReader extents(reader.take(std::size_t{dimensions} * sizeof(std::int64_t)));
  parameter.shape.resize(extents.remaining() / sizeof(std::int64_t));
  for (std::int64_t& extent : parameter.shape)
    extent = static_cast<std::int64_t>(extents.get<std::uint64_t>());
  parameter.name = reader.take_text(name_bytes);
  return parameter;
}

}  // namespace

std::vector<std::byte> encode(const Catalog& catalog) {
  std::vector<std::byte> bytes(bytes_of(catalog));
  ByteWriter writer(bytes);
  writer.put(count_of(catalog.parameters));
  writer.put(count_of(catalog.aliases));
  writer.put(count_of(catalog.chunks));
  writer.put(count_of(catalog.runs));
  for (const StoredParameter& parameter : catalog.parameters) put(writer, parameter);
  for (const StoredAlias& alias : catalog.aliases) {
    writer.put(static_cast<std::uint32_t>(alias.name.size()));
    writer.put(alias.parameter);
    writer.put(alias.name);
  }
  for (const StoredChunk& chunk : catalog.chunks) {
    writer.put(chunk.class_index);
    writer.put(chunk.elements);
    writer.put(chunk.drive);
  }
  for (const SlotRun& run : catalog.runs) {
    writer.put(run.class_index);
    writer.put(run.drive);
    writer.put(run.first_offset);
    writer.put(run.slot_bytes);
    writer.put(run.slots);
  }
  return bytes;
}

Result<Catalog> decode_catalog(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  const auto parameters = reader.get<std::uint32_t>();
  const auto aliases = reader.get<std::uint32_t>();
  const auto chunks = reader.get<std::uint32_t>();
  const auto runs = reader.get<std::uint32_t>();
  const std::uint64_t least = std::uint64_t{parameters} * kParameterBytes +
                              std::uint64_t{aliases} * kAliasBytes + std::uint64_t{chunks} * kChunkBytes +
                              std::uint64_t{runs} * kRunBytes;
  if (!reader.holds(least, 1)) {
    return Status(
        Code::kDataLoss,
        fmt::format("a catalog of {} bytes cannot hold {} parameters, {} aliases, {} chunks and {} runs "
                    "of slots",
                    bytes.size(), parameters, aliases, chunks, runs));
  }
  Catalog catalog;
  catalog.parameters.resize(parameters);
  for (StoredParameter& parameter : catalog.parameters) parameter = get_parameter(reader);
  catalog.aliases.resize(aliases);
  for (StoredAlias& alias : catalog.aliases) {
    const auto name_bytes = reader.get<std::uint32_t>();
    alias.parameter = reader.get<std::uint32_t>();
    alias.name = reader.take_text(name_bytes);
  }
  catalog.chunks.resize(chunks);
  for (StoredChunk& chunk : catalog.chunks) {
    chunk.class_index = reader.get<std::uint32_t>();
    chunk.elements = reader.get<std::uint32_t>();
    chunk.drive = reader.get<std::uint32_t>();
  }
  catalog.runs.resize(runs);
  for (SlotRun& run : catalog.runs) {
    run.class_index = reader.get<std::uint32_t>();
    run.drive = reader.get<std::uint32_t>();
    run.first_offset = reader.get<std::uint64_t>();
    run.slot_bytes = reader.get<std::uint64_t>();
    run.slots = reader.get<std::uint64_t>();
  }
  if (!reader.ok()) {
    return Status(Code::kDataLoss,
                  fmt::format("truncated: the tables of a catalog go on behind its {} bytes", bytes.size()));
  }
  if (reader.remaining() > 0) {
    return Status(Code::kDataLoss,
                  fmt::format("a catalog of {} bytes, its tables end after {}", bytes.size(), reader.at()));
  }
  const Status status = check(catalog);
  if (status.code() == Code::kInvalidArgument) return Status(Code::kDataLoss, status.message());
  SLUICE_RETURN_IF_ERROR(status);
  return catalog;
}

}  // namespace sluice::store
