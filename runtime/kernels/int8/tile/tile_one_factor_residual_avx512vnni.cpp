// Register tiles of the form kOneFactor that add another tensor.
#if defined(__x86_64__)

#include "int8/tile/tile_kernel.h"

namespace tpuconvert::avx512 {

TileKernel tile_one_factor_residual(int full, int rows) { return tile_of<TileEpilogue::kOneFactor, true>(full, rows); }

}  // namespace tpuconvert::avx512

#endif
