#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentKernels kRecurrentAvx2{Float::kLanes, 2, run_recurrent<Float, 2>};
const RecurrentKernels kRecurrentAvx2Precise{Double::kLanes, 1, run_recurrent<Double, 1>};

}  // namespace tpuconvert
#endif
