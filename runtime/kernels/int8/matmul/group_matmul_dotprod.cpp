#if defined(__aarch64__)
#include "float32/vector_neon.h"

namespace tpuconvert {
namespace {

constexpr int kByteOffset = 128;

// Codes of 8 bits are centered at 0, because the dot product is one of signed bytes.
template <int kBits>
FLOAT_INLINE int32x4_t add_byte_products(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
  if constexpr (kBits == 8) codes = veorq_u8(codes, vdupq_n_u8(128));
  return vdotq_s32(sum, vreinterpretq_s8_u8(codes), x);
}

}  // namespace
}  // namespace tpuconvert

// Uses the definitions above.
#include "int8/matmul/group_matmul_words_neon.h"
// Uses the vector types of the file above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupDotprod{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
