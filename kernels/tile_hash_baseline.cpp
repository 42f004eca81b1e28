#define SLUICE_HASH_TARGET kHashBaseline
#include "kernels/tile_hash-inl.hpp"
