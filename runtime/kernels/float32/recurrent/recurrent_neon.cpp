#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentKernels kRecurrentNeon{Float::kLanes, 2, run_recurrent<Float, 2>};
const RecurrentKernels kRecurrentNeonPrecise{Double::kLanes, 1, run_recurrent<Double, 1>};

}  // namespace tpuconvert
#endif
