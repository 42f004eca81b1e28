#define SLUICE_HASH_TARGET kHashAvx2
#include "kernels/tile_hash-inl.hpp"
