#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentKernels kRecurrentScalar{Float::kLanes, 1, run_recurrent<Float, 1>};
const RecurrentKernels kRecurrentScalarPrecise{Double::kLanes, 1, run_recurrent<Double, 1>};

}  // namespace tpuconvert
