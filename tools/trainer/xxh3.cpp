#include "trainer/xxh3.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice::trainer {

std::uint64_t xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace sluice::trainer
