#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/depthwise/depthwise_tile.h"

namespace tpuconvert {

const DepthwiseKernels kDepthwiseNeon{Float::kLanes, run_depthwise<1>, run_precise_depthwise};

}  // namespace tpuconvert
#endif
