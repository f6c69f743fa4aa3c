#include "float32/vector_scalar.h"
// Uses the vector types of the header above.
#include "float32/attention/cached_attention_tile.h"

namespace tpuconvert {

const CachedAttentionKernels kCachedAttentionScalar{run_cached_attention};

}  // namespace tpuconvert
