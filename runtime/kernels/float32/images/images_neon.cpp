#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/images/pool_tile.h"
#include "float32/images/resize_tile.h"

namespace tpuconvert {

const ImageKernels kImagesNeon{run_pool, run_resize};

}  // namespace tpuconvert
#endif
