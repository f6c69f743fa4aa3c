#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/rows/norm_tile.h"
#include "float32/rows/reduce_tile.h"
#include "float32/rows/softmax_tile.h"

namespace tpuconvert {

const RowKernels kRowsNeon{run_softmax, run_normalize, run_reduce};

}  // namespace tpuconvert
#endif
