#ifdef __AVXVNNI__
#include "float32/vector_avx2.h"

namespace tpuconvert {
namespace {

constexpr int kByteOffset = 0;

template <int kBits>
FLOAT_INLINE void add_byte_products(__m256i& sum, __m256i codes, __m256i x) {
  sum = _mm256_dpbusd_avx_epi32(sum, codes, x);
}

}  // namespace
}  // namespace tpuconvert

// Uses the definitions above.
#include "int8/matmul/group_matmul_words_256.h"
// Uses the vector types of the file above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupAvxVnni{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
