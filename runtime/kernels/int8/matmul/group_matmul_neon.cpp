#if defined(__aarch64__)
#include "float32/vector_neon.h"

namespace tpuconvert {
namespace {

constexpr int kByteOffset = 128;

// Codes of 8 bits are centered at 0. Sums of two products fit 16 bits: 2 * 127 * 128 < 2^15.
template <int kBits>
FLOAT_INLINE int32x4_t add_byte_products(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
  if constexpr (kBits == 8) codes = veorq_u8(codes, vdupq_n_u8(128));
  const int8x16_t w = vreinterpretq_s8_u8(codes);
  const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
  return vpadalq_s16(sum, vpaddq_s16(low, high));
}

}  // namespace
}  // namespace tpuconvert

// Uses the definitions above.
#include "int8/matmul/group_matmul_words_neon.h"
// Uses the vector types of the file above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupNeon{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
