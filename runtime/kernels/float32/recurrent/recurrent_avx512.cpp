#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentKernels kRecurrentAvx512{Float::kLanes, 4, run_recurrent<Float, 4>};
const RecurrentKernels kRecurrentAvx512Precise{Double::kLanes, 1, run_recurrent<Double, 1>};

}  // namespace tpuconvert
#endif
