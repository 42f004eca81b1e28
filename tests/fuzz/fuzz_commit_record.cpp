// What a place for a commit record holds: as it comes, and with its length and its checksum made right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "kernels/tile_hash.hpp"
#include "store/bytes.hpp"
#include "store/commit_record.hpp"

namespace {

using namespace sluice;

constexpr std::size_t kTotalBytesOffset = 16;
constexpr std::size_t kHeaderBytes = 112;

/// A record is encoded as it was.
void decode_and_compare(std::span<const std::byte> bytes) {
  const auto record = store::decode_commit(bytes);
  if (!record.ok()) return;
  std::vector<std::byte> again(bytes.size());
  again.resize(store::encode(*record, again));
  if (!std::ranges::equal(again, bytes.first(again.size()))) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  decode_and_compare(bytes);
  if (size < kHeaderBytes + 8) return 0;
  std::vector<std::byte> sealed(bytes.begin(), bytes.end());
  store::ByteWriter(std::span<std::byte>(sealed).subspan(kTotalBytesOffset)).put(std::uint64_t{size});
  store::ByteWriter(std::span<std::byte>(sealed).last(8)).put(kernels::hash_bytes(sealed.data(), size - 8));
  decode_and_compare(sealed);
  return 0;
}
