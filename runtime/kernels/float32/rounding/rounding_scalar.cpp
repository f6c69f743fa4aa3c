#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/rounding/rounding_tile.h"

namespace tpuconvert {

const RoundingKernels kRoundingScalar{4, 2 * Float::kLanes, run_subtract<4, 2>, run_subtract_row};

}  // namespace tpuconvert
