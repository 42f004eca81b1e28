// The body of the tile_hash_<target>.cpp files, each of which names its table and is compiled with its
// target's flags. Nothing here or included here may have external linkage but the table: an inline function
// that other files share could be linked from the copy that needs the target.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include "kernels/tile_hash_targets.hpp"

namespace sluice::kernels {
namespace {

std::uint64_t hash(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

void reset(void* state) {
  XXH3_INITSTATE(static_cast<XXH3_state_t*>(state));
  XXH3_64bits_reset(static_cast<XXH3_state_t*>(state));
}

static_assert(StripeSums::kStripeBytes == XXH_STRIPE_LEN);
static_assert(StripeSums::kScrambleOffset == sizeof(XXH3_kSecret) - XXH_STRIPE_LEN);
static_assert(StripeSums::kBlockStripes == StripeSums::kScrambleOffset / XXH_SECRET_CONSUME_RATE);

// Adds stripes of 64 bytes to the sums and scrambles them where a block of stripes ends. The last stripe of all bytes
// is not for here: a digest adds it with another part of the secret.
XXH_FORCE_INLINE void add_stripes(xxh_u64* sums, XXH3_state_t& state, const unsigned char* stripes,
                                  std::size_t count) {
  while (count != 0) {
    const std::size_t begin = state.nbStripesSoFar;
    const std::size_t run = count < state.nbStripesPerBlock - begin ? count : state.nbStripesPerBlock - begin;
    const unsigned char* secret = state.extSecret + begin * XXH_SECRET_CONSUME_RATE;
    for (std::size_t i = 0; i < run; ++i) {
      XXH3_accumulate_512(sums, stripes + i * XXH_STRIPE_LEN, secret + i * XXH_SECRET_CONSUME_RATE);
    }
    state.nbStripesSoFar += run;
    if (state.nbStripesSoFar == state.nbStripesPerBlock) {
      XXH3_scrambleAcc(sums, state.extSecret + state.secretLimit);
      state.nbStripesSoFar = 0;
    }
    stripes += run * XXH_STRIPE_LEN;
    count -= run;
  }
}

// XXH3_64bits_update copies 256 bytes of each piece into its buffer and adds them from there, a third of a piece of
// 768 bf16 weights. Of whole stripes the last one alone has to wait: 0.21 in place of 0.27 ns for 12 bytes in pieces
// of 1536 (AVX-512, an Intel Xeon with AVX-512 FP16, xxHash 0.8.1, 2026-12).
void update(void* opaque, const void* data, std::size_t bytes) {
  XXH3_state_t& state = *static_cast<XXH3_state_t*>(opaque);
  const bool whole_stripes = bytes % XXH_STRIPE_LEN == 0 && state.bufferedSize % XXH_STRIPE_LEN == 0;
  if (!whole_stripes || bytes <= XXH3_MIDSIZE_MAX) {
    XXH3_64bits_update(&state, data, bytes);
    return;
  }
  alignas(64) xxh_u64 sums[XXH_STRIPE_LEN / sizeof(xxh_u64)];
  std::memcpy(sums, state.acc, sizeof sums);
  const auto* stripes = static_cast<const unsigned char*>(data);
  const std::size_t count = bytes / XXH_STRIPE_LEN - 1;
  add_stripes(sums, state, state.buffer, state.bufferedSize / XXH_STRIPE_LEN);
  add_stripes(sums, state, stripes, count);
  std::memcpy(state.acc, sums, sizeof sums);
  std::memcpy(state.buffer, stripes + count * XXH_STRIPE_LEN, XXH_STRIPE_LEN);
  state.bufferedSize = XXH_STRIPE_LEN;
  state.totalLen += bytes;
}

bool at_stripe(const void* opaque, std::size_t stripes) {
  const XXH3_state_t& state = *static_cast<const XXH3_state_t*>(opaque);
  if (state.bufferedSize % XXH_STRIPE_LEN != 0) return false;
  return (state.nbStripesSoFar + state.bufferedSize / XXH_STRIPE_LEN) % stripes == 0;
}

void lend(void* opaque, StripeSums& sums) {
  XXH3_state_t& state = *static_cast<XXH3_state_t*>(opaque);
  std::memcpy(sums.sums, state.acc, sizeof sums.sums);
  add_stripes(sums.sums, state, state.buffer, state.bufferedSize / XXH_STRIPE_LEN);
  sums.secret = state.extSecret;
  sums.in_block = state.nbStripesSoFar;
}

void take_back(void* opaque, const StripeSums& sums, std::size_t bytes) {
  XXH3_state_t& state = *static_cast<XXH3_state_t*>(opaque);
  std::memcpy(state.acc, sums.sums, sizeof sums.sums);
  state.nbStripesSoFar = sums.in_block;
  state.bufferedSize = 0;
  state.totalLen += bytes;
}

std::uint64_t digest(const void* state) {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state));
}

}  // namespace

extern const HashTarget SLUICE_HASH_TARGET;
const HashTarget SLUICE_HASH_TARGET = {&hash, &reset, &update, &at_stripe, &lend, &take_back, &digest};
static_assert(sizeof(XXH3_state_t) == 576 && alignof(XXH3_state_t) == 64);

}  // namespace sluice::kernels
