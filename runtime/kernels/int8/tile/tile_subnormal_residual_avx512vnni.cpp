// Register tiles with the epilogue kSubnormal and a residual add.
#if defined(__x86_64__)

#include "int8/tile/tile_kernel.h"

namespace tpuconvert::avx512 {

TileKernel tile_subnormal_residual(int full, int rows) { return tile_of<TileEpilogue::kSubnormal, true>(full, rows); }

}  // namespace tpuconvert::avx512

#endif
