// Register tiles with the epilogue kWords.
#if defined(__x86_64__)

#include "int8/tile/tile_kernel.h"

namespace tpuconvert::avx512 {

TileKernel tile_words(int full, bool half, int rows) { return tile_of<TileEpilogue::kWords>(full, half, rows); }

}  // namespace tpuconvert::avx512

#endif
