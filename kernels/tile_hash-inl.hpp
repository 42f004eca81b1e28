// The body of the tile_hash_<target>.cpp files, each of which names its table and is compiled with its
// target's flags. Nothing here or included here may have external linkage but the table: an inline function
// that other files share could be linked from the copy that needs the target.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "kernels/tile_hash_targets.hpp"

namespace sluice::kernels {
namespace {

std::uint64_t hash(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

void reset(void* state) {
  XXH3_INITSTATE(static_cast<XXH3_state_t*>(state));
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state));
}

void update(void* state, const void* data, std::size_t bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state), data, bytes);
}

std::uint64_t digest(const void* state) {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
}

}  // namespace

extern const HashTarget SLUICE_HASH_TARGET;
const HashTarget SLUICE_HASH_TARGET = {&hash, &reset, &update, &digest};
static_assert(sizeof(XXH3_state_t) == 576 && alignof(XXH3_state_t) == 64);

}  // namespace sluice::kernels
