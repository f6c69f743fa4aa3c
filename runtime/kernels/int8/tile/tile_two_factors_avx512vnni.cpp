// Register tiles with the epilogue kTwoFactors.
#if defined(__x86_64__)

#include "int8/tile/tile_kernel.h"

namespace tpuconvert::avx512 {

TileKernel tile_two_factors(int full, bool half, int rows) { return tile_of<TileEpilogue::kTwoFactors>(full, half, rows); }

}  // namespace tpuconvert::avx512

#endif
