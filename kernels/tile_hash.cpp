#include "kernels/tile_hash.hpp"

// Static functions for plain targets: of long inputs only the ends are for them.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace sluice::kernels {
namespace {

static_assert(StripeSums::kStripeBytes == XXH_STRIPE_LEN);
static_assert(StripeSums::kScrambleOffset == sizeof(XXH3_kSecret) - XXH_STRIPE_LEN);
static_assert(StripeSums::kBlockStripes == StripeSums::kScrambleOffset / XXH_SECRET_CONSUME_RATE);

XXH3_state_t& as_state(std::byte* bytes) { return *reinterpret_cast<XXH3_state_t*>(bytes); }
const XXH3_state_t& as_state(const std::byte* bytes) { return *reinterpret_cast<const XXH3_state_t*>(bytes); }

// The state's sums with all that it has buffered, which is whole stripes.
StripeSums sums_of(const XXH3_state_t& state) {
  StripeSums sums;
  std::memcpy(sums.sums, state.acc, sizeof sums.sums);
  sums.secret = state.extSecret;
  sums.in_block = state.nbStripesSoFar;
  add_stripes(sums, state.buffer, state.bufferedSize / XXH_STRIPE_LEN);
  return sums;
}

void set_sums(XXH3_state_t& state, const StripeSums& sums) {
  std::memcpy(state.acc, sums.sums, sizeof sums.sums);
  state.nbStripesSoFar = sums.in_block;
  state.bufferedSize = 0;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  constexpr std::size_t kLong = 1024;
  if (bytes <= kLong) return XXH3_64bits(data, bytes);
  Hasher hasher;
  hasher.update(data, bytes);
  return hasher.digest();
}

std::uint64_t plane_hash(const std::uint64_t* tile_hashes, std::size_t tiles) {
  static_assert(std::endian::native == std::endian::little, "the array is hashed as it lies in memory");
  return hash_bytes(tile_hashes, tiles * sizeof(std::uint64_t));
}

Hasher::Hasher() {
  static_assert(sizeof(XXH3_state_t) <= kStateBytes && alignof(XXH3_state_t) <= alignof(Hasher));
  XXH3_INITSTATE(&as_state(state_));
  XXH3_64bits_reset(&as_state(state_));
}

void Hasher::update(const void* data, std::size_t bytes) {
  XXH3_state_t& state = as_state(state_);
  const auto* from = static_cast<const unsigned char*>(data);
  if (const std::size_t part = state.bufferedSize % XXH_STRIPE_LEN; part != 0) {
    const std::size_t to_stripe = std::min<std::size_t>(XXH_STRIPE_LEN - part, bytes);
    XXH3_64bits_update(&state, from, to_stripe);
    from += to_stripe;
    bytes -= to_stripe;
  }
  if (bytes <= XXH3_MIDSIZE_MAX) {
    XXH3_64bits_update(&state, from, bytes);
    return;
  }
  // What follows the sums is kept, and a whole stripe at least: a digest adds the last one with another part of the secret.
  const std::size_t kept = XXH_STRIPE_LEN + bytes % XXH_STRIPE_LEN;
  StripeSums sums = sums_of(state);
  add_stripes(sums, from, (bytes - kept) / XXH_STRIPE_LEN);
  set_sums(state, sums);
  std::memcpy(state.buffer, from + (bytes - kept), kept);
  state.bufferedSize = static_cast<XXH32_hash_t>(kept);
  state.totalLen += bytes;
}

bool Hasher::at_stripe(std::size_t stripes) const {
  const XXH3_state_t& state = as_state(state_);
  if (state.bufferedSize % XXH_STRIPE_LEN != 0) return false;
  return (state.nbStripesSoFar + state.bufferedSize / XXH_STRIPE_LEN) % stripes == 0;
}

StripeSums Hasher::lend() { return sums_of(as_state(state_)); }

void Hasher::take_back(const StripeSums& sums, std::size_t bytes) {
  XXH3_state_t& state = as_state(state_);
  set_sums(state, sums);
  state.totalLen += bytes;
}

std::uint64_t Hasher::digest() const { return XXH3_64bits_digest(&as_state(state_)); }

}  // namespace sluice::kernels
