#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/rounding/rounding_tile.h"

namespace tpuconvert {

const RoundingKernels kRoundingAvx2{4, 3 * Float::kLanes, run_subtract<4, 3>, run_subtract_row};

}  // namespace tpuconvert
#endif
