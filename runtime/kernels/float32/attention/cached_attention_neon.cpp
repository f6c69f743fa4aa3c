#if defined(__aarch64__)
#include "float32/vector_neon.h"
// Uses the vector types of the header above.
#include "float32/attention/cached_attention_tile.h"

namespace tpuconvert {

const CachedAttentionKernels kCachedAttentionNeon{run_cached_attention};

}  // namespace tpuconvert
#endif
