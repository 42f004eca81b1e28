#define SLUICE_HASH_TARGET kHashAvx512
#include "kernels/tile_hash-inl.hpp"
