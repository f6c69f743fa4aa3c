#if defined(__aarch64__)
#include "float32/vector_neon.h"

namespace tpuconvert {
namespace {

constexpr int kByteOffset = 0;

template <int kBits>
FLOAT_INLINE int32x4_t add_byte_products(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
  return vusdotq_s32(sum, codes, x);
}

}  // namespace
}  // namespace tpuconvert

// Uses the definitions above.
#include "int8/matmul/group_matmul_words_neon.h"
// Uses the vector types of the file above.
#include "int8/matmul/group_matmul_tile.h"

namespace tpuconvert {

const Int8GroupKernels kInt8GroupI8mm{Float::kLanes, quantize, multiply};

}  // namespace tpuconvert
#endif
