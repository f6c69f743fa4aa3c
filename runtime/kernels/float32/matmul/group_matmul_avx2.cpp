#ifdef __AVX2__
#include "float32/vector_avx2.h"

namespace tpuconvert {
namespace {

constexpr int kGroupSums = 8;

// Eight words of eight 4-bit codes, the next one in the low-order bits.
struct Nibbles {
  __m256i v;

  FLOAT_INLINE static Nibbles load(const std::uint8_t* from) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))};
  }
  FLOAT_INLINE Float value() const { return {_mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(15)))}; }
  FLOAT_INLINE Float centered_value() const { return {_mm256_sub_ps(value().v, _mm256_set1_ps(8.0f))}; }
  FLOAT_INLINE void advance() { v = _mm256_srli_epi32(v, 4); }
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "float32/matmul/group_matmul_tile.h"

namespace tpuconvert {

const GroupMatmulKernels kGroupMatmulAvx2{Float::kLanes, decode, dequantize};

}  // namespace tpuconvert
#endif
