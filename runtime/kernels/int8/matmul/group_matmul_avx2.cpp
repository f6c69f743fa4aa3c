#ifdef __AVX2__
#include "float32/vector_avx2.h"

namespace tpuconvert {
namespace {

constexpr int kByteOffset = 128;

// Adds the dot products of four bytes. Sums of two products do not saturate in INT16: 2 * 127 * 128 < 2^15. Codes of 8
// bits are centered at 0 for this, and their sign is moved to x.
template <int kBits>
FLOAT_INLINE void add_byte_products(__m256i& sum, __m256i codes, __m256i x) {
  if constexpr (kBits == 8) {
    const __m256i centered = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
    codes = _mm256_abs_epi8(centered);
    x = _mm256_sign_epi8(x, centered);
  }
  const __m256i pairs = _mm256_maddubs_epi16(codes, x);
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

}  // namespace
}  // namespace tpuconvert

// Uses the definitions above.
#include "int8/matmul/group_matmul_words_256.h"
// Uses the vector types of the file above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupAvx2{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
