#ifdef __AVX2__
#include "float32/vector_avx2.h"
// Uses the vector types of the header above.
#include "float32/elementwise/chain_tile.h"

namespace tpuconvert {

const ChainKernels kChainAvx2{run_chain<false>, run_chain<true>, read_chain};

}  // namespace tpuconvert
#endif
