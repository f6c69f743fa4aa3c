#ifdef __AVX512F__
#include "float32/vector_avx512.h"
// Uses the vector types of the header above.
#include "float32/attention/cached_attention_tile.h"

namespace tpuconvert {

const CachedAttentionKernels kCachedAttentionAvx512{run_cached_attention};

}  // namespace tpuconvert
#endif
