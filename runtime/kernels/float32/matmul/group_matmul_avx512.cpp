#ifdef __AVX512F__
#include "float32/vector_avx512.h"

namespace tpuconvert {
namespace {

constexpr int kGroupSums = 16;

// Sixteen words of eight 4-bit codes, the next one in the low-order bits. The lookup ignores all other bits.
struct Nibbles {
  __m512i v;

  FLOAT_INLINE static Nibbles load(const std::uint8_t* from) { return {_mm512_loadu_si512(from)}; }
  FLOAT_INLINE Float value() const {
    return {_mm512_permutexvar_ps(v, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
  }
  FLOAT_INLINE Float centered_value() const {
    return {_mm512_permutexvar_ps(v, _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7))};
  }
  FLOAT_INLINE void advance() { v = _mm512_srli_epi32(v, 4); }
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "float32/matmul/group_matmul_tile.h"

namespace tpuconvert {

const GroupMatmulKernels kGroupMatmulAvx512{Float::kLanes, decode, dequantize};

}  // namespace tpuconvert
#endif
