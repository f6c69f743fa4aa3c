#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/rounding/rounding_tile.h"

namespace tpuconvert {

const RoundingKernels kRoundingNeon{4, 3 * Float::kLanes, run_subtract<4, 3>, run_subtract_row};

}  // namespace tpuconvert
#endif
