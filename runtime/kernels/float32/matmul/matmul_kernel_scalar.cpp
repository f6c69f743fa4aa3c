#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/matmul/matmul_tile.h"

namespace tpuconvert {

const MatmulKernels kMatmulScalar{Float::kLanes,
                                    2,
                                    4,
                                    2,
                                    run_product<false, 4, 2>,
                                    run_product<true, 2, 2>,
                                    run_matmul<false, 4, 2>,
                                    run_matmul<true, 2, 2>,
                                    run_panel<false, 4, 2>,
                                    run_panel<true, 2, 2>};

}  // namespace tpuconvert
