#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/depthwise/depthwise_tile.h"

namespace tpuconvert {

const DepthwiseKernels kDepthwiseScalar{Float::kLanes, run_depthwise<1>, run_precise_depthwise};

}  // namespace tpuconvert
