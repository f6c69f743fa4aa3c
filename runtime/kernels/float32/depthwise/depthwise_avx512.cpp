#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/depthwise/depthwise_tile.h"

namespace tpuconvert {

const DepthwiseKernels kDepthwiseAvx512{Float::kLanes, run_depthwise<2>, run_precise_depthwise};

}  // namespace tpuconvert
#endif
