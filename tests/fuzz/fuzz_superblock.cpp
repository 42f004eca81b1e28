// The first bytes of a container: as they come, and with their checksum made right.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "kernels/tile_hash.hpp"
#include "store/bytes.hpp"
#include "store/superblock.hpp"

namespace {

using namespace sluice;

/// What decodes is what encodes to the same bytes; an earlier version's to the same superblock.
void decode_and_compare(std::span<const std::byte> bytes) {
  const auto superblock = store::decode(bytes);
  if (!superblock.ok()) return;
  const store::SuperblockBytes again = store::encode(*superblock);
  const auto version = store::ByteReader(bytes.subspan(8)).get<std::uint32_t>();
  const bool same = version == store::kFormatVersion
                        ? std::ranges::equal(again, bytes.first(again.size()))
                        : store::decode(again).ok() && *store::decode(again) == *superblock;
  if (!same) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  decode_and_compare(bytes);
  (void)store::is_blank(bytes);
  if (size < store::kSuperblockBytes) return 0;
  store::SuperblockBytes sealed;
  std::copy_n(bytes.begin(), sealed.size(), sealed.begin());
  store::ByteWriter(std::span<std::byte>(sealed).last(8))
      .put(kernels::hash_bytes(sealed.data(), sealed.size() - 8));
  decode_and_compare(sealed);
  return 0;
}
