#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/matmul/matmul_tile.h"

namespace tpuconvert {

const MatmulKernels kMatmulAvx2{Float::kLanes,
                                  2,
                                  6,
                                  3,
                                  run_product<false, 6, 2>,
                                  run_product<true, 3, 2>,
                                  run_matmul<false, 6, 2>,
                                  run_matmul<true, 3, 2>,
                                  run_panel<false, 6, 2>,
                                  run_panel<true, 3, 2>};

}  // namespace tpuconvert
#endif
