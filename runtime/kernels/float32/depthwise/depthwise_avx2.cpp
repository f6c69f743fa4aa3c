#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/depthwise/depthwise_tile.h"

namespace tpuconvert {

const DepthwiseKernels kDepthwiseAvx2{Float::kLanes, run_depthwise<1>, run_precise_depthwise};

}  // namespace tpuconvert
#endif
