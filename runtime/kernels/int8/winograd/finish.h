// Requantization of rows of sums for AVX512-VNNI, with a lookup table and a residual add. Plain data, like tile.h.
#pragma once

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

// Of `arguments`, the kernel uses `sums` ([row][kLanes * accumulators] in lane order, with the bias), `parameters`
// without the bias, `outputs`, `output_offset`, `mask`, `lut`, `offset`, `low`, `high` and `residual`.
using FinishKernel = void (*)(const TileArguments& arguments, int rows);

// `accumulators` is 1..4. Null for kSums, and for a residual add unless the epilogue is kSubnormal or kOneFactor.
FinishKernel finish_kernel(TileEpilogue epilogue, int accumulators, bool adds_residual);

}  // namespace tpuconvert::avx512
