#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/rows/norm_tile.h"
#include "float32/rows/reduce_tile.h"
#include "float32/rows/softmax_tile.h"

namespace tpuconvert {

const RowKernels kRowsAvx512{run_softmax, run_normalize, run_reduce};

}  // namespace tpuconvert
#endif
