#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/rounding/rounding_tile.h"

namespace tpuconvert {

const RoundingKernels kRoundingAvx512{8, 3 * Float::kLanes, run_subtract<8, 3>, run_subtract_row};

}  // namespace tpuconvert
#endif
