// Integer recurrent layers with vectors of 16 lanes.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

namespace tpuconvert {
namespace {

struct Lanes {
  using V = __m512i;
  using Item = std::uint8_t;
  using Weight = std::int8_t;
  static constexpr int kLanes = 16, kItems = 4, kTileRows = 4, kAccumulators = 16;

  static V broadcast(std::int32_t x) { return _mm512_set1_epi32(x); }
  static V load(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  static void store(std::int32_t* to, V x) { _mm512_storeu_si512(to, x); }
  static V load_words(const std::int16_t* from) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static void store_bytes(std::uint8_t* to, V x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x));
  }
  static void store_items(Item* to, V x) { store_bytes(to, x); }
  static V add(V a, V b) { return _mm512_add_epi32(a, b); }
  static V subtract(V a, V b) { return _mm512_sub_epi32(a, b); }
  static V multiply(V a, V b) { return _mm512_mullo_epi32(a, b); }
  static V smaller(V a, V b) { return _mm512_min_epi32(a, b); }
  static V larger(V a, V b) { return _mm512_max_epi32(a, b); }
  static V bit_and(V a, V b) { return _mm512_and_si512(a, b); }
  static V sign(V x) { return _mm512_srai_epi32(x, 31); }
  static V negative_if_positive(V x) { return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(x, _mm512_setzero_si512())); }
  static V shift_right(V x, int bits) { return _mm512_sra_epi32(x, _mm_cvtsi32_si128(bits)); }
  static V shift_right_by(V x, V bits) { return _mm512_srav_epi32(x, bits); }
  static V shift_left_by(V x, V bits) { return _mm512_sllv_epi32(x, bits); }
  // (a * b + 2^30) >> 31
  static V multiply_high(V a, V b) {
    const V half = _mm512_set1_epi64(std::int64_t{1} << 30);
    const V even = _mm512_add_epi64(_mm512_mul_epi32(a, b), half);
    const V odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32)), half);
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
  }
  static V gather(const std::int16_t* table, V index) {
    const V found = _mm512_i32gather_epi32(index, table, 2);
    return _mm512_srai_epi32(_mm512_slli_epi32(found, 16), 16);
  }
  static V dot(V sum, V x, V w) { return _mm512_dpbusd_epi32(sum, x, w); }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8Avx512Vnni = kKernels;

}  // namespace tpuconvert
#endif
