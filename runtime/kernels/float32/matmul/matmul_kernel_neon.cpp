#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/matmul/matmul_tile.h"

namespace tpuconvert {

// 24 accumulators, 4 vectors of weights and 2 broadcast inputs of 32 registers.
const MatmulKernels kMatmulNeon{Float::kLanes,
                                4,
                                6,
                                2,
                                run_product<false, 6, 4>,
                                run_product<true, 2, 4>,
                                run_matmul<false, 6, 4>,
                                run_matmul<true, 2, 4>,
                                run_panel<false, 6, 4>,
                                run_panel<true, 2, 4>};

}  // namespace tpuconvert
#endif
