#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/matmul/matmul_tile.h"

namespace tpuconvert {

const MatmulKernels kMatmulAvx512{Float::kLanes,
                                    2,
                                    14,
                                    6,
                                    run_product<false, 14, 2>,
                                    run_product<true, 6, 2>,
                                    run_matmul<false, 14, 2>,
                                    run_matmul<true, 6, 2>,
                                    run_panel<false, 14, 2>,
                                    run_panel<true, 6, 2>};

}  // namespace tpuconvert
#endif
