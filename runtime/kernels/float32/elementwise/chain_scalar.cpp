#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/elementwise/chain_tile.h"

namespace tpuconvert {

const ChainKernels kChainScalar{run_chain<false>, run_chain<true>, read_chain};

}  // namespace tpuconvert
