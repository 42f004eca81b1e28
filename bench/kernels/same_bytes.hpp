#pragma once

#include <cstddef>

#include "kernels/update.hpp"

namespace sluice::bench {

/// Loops that read and write exactly the bytes of a kernel, on the same target, with the least computing that
/// a compiler cannot remove: what is written is what was read. Element counts are multiples of 64.
void same_bytes_bf16_split(const kernels::PlanePointers& planes, const void* gradient,
                           std::size_t gradient_element_bytes, std::size_t elements);
void same_bytes_fp32(const kernels::PlanePointers& planes, const void* gradient,
                     std::size_t gradient_element_bytes, std::size_t elements);

/// Reads source, writes target, or also reads target before.
void same_bytes_store(void* target, std::size_t target_element_bytes, const void* source,
                      std::size_t source_element_bytes, std::size_t elements);
void same_bytes_add(float* target, const void* source, std::size_t source_element_bytes,
                    std::size_t elements);

void same_bytes_read(const void* source, std::size_t bytes);

}  // namespace sluice::bench
