#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/elementwise/chain_tile.h"

namespace tpuconvert {

const ChainKernels kChainNeon{run_chain<false>, run_chain<true>, read_chain};

}  // namespace tpuconvert
#endif
