#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/images/pool_tile.h"
#include "float32/images/resize_tile.h"

namespace tpuconvert {

const ImageKernels kImagesAvx2{run_pool, run_resize};

}  // namespace tpuconvert
#endif
