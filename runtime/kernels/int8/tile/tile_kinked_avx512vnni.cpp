// Register tiles with the epilogue kKinked.
#if defined(__x86_64__)

#include "int8/tile/tile_kernel.h"

namespace tpuconvert::avx512 {

TileKernel tile_kinked(int full, bool half, int rows) { return tile_of<TileEpilogue::kKinked>(full, half, rows); }

}  // namespace tpuconvert::avx512

#endif
