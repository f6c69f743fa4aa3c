#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/images/pool_tile.h"
#include "float32/images/resize_tile.h"

namespace tpuconvert {

const ImageKernels kImagesAvx512{run_pool, run_resize};

}  // namespace tpuconvert
#endif
