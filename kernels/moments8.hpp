#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::kernels {

/// Moments in 8 bits a value with an fp32 scale a granule: a dynamic code, whose steps are fine where values are
/// large and which reaches down over seven (signed) or eight (unsigned) powers of ten below the granule's largest.
///
/// A magnitude code c > 0 is 2^d + j with 0 <= j < 2^d: bucket j of the 2^d that divide the decade
/// [10^(d - D), 10^(d - D + 1)) evenly, D = 7 (signed: the code's low 7 bits, its high bit the sign) or 8
/// (unsigned). The bucket's middle is middle(c) = 10^(d - D) * (1 + 9 * (j + 1/2) / 2^d); middle(0) = 0.
///   scale = the granule's largest magnitude; value = scale * middle(c) / middle(the largest code)
/// so that the largest value is kept to the bit, and coding what was decoded from codes that were made here gives the
/// same codes and scales. The quotient is computed exactly in lines whose slopes have 15 bits (kernels/moments8_code.hpp)
/// and lies within 2^-12 of itself from the formula's.
/// A value below the smallest bucket becomes 0 if signed; if unsigned (second moments, which divide) the smallest code
/// unless it is 0. A code that would stand for a denormal is not used: 0 is. A granule with a NaN, or an Inf if signed,
/// has the scale NaN and codes 0, and decodes to NaN. If unsigned, Inf is kept as the largest float, for the square of a
/// finite gradient overflows: one of them stops its own element, not its granule.
/// Bound: a value x of a granule with largest magnitude M and middle(largest) * |x| / M in decade d decodes to within
/// 9 / 2^(d + 1) of the decade's lower end, hence within 7.1 % of x in the largest decade of the signed code, 3.6 % of
/// the unsigned, doubling from decade to decade down.
/// Source: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022,
/// sections 2.1 and 2.2 (there blocks of 2048 and a code with 1.0 in it).
enum class Moment8 : std::uint8_t { kSigned, kUnsigned };

/// target[i] = the value of code i. Shape: codes, target [elements]; scales [ceil(elements / 256)].
/// Requires: element 0 is the first of a granule. Threads: any.
void decode_moments8(float* target, const std::uint8_t* codes, const float* scales, std::size_t elements,
                     Moment8 kind);

/// Codes and scales of values; denormals count as 0, missing elements of the last granule do not count. Requires: as
/// above; if unsigned, source >= 0 or NaN (Inf counts as FLT_MAX). Cost: two passes over a granule in the first-level cache.
void encode_moments8(std::uint8_t* codes, float* scales, const float* source, std::size_t elements,
                     Moment8 kind);

}  // namespace sluice::kernels
