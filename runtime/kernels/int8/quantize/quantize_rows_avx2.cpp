// Quantization of rows with vectors of 8 lanes.
#include "float32/vector_avx2.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

using Real = Float;
using Wide = Double;
using Mask = FloatMask;

FLOAT_INLINE Mask all_lanes() { return {_mm256_castsi256_ps(_mm256_set1_epi32(-1))}; }
FLOAT_INLINE Mask both(Mask a, Mask b) { return {_mm256_and_ps(a.m, b.m)}; }
// Loads the first n lanes; the others are those of `rest`.
FLOAT_INLINE Real load_first(const float* from, std::int64_t n, Real rest) {
  const __m256i indices = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i is_loaded = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), indices);
  return {_mm256_blendv_ps(rest.v, _mm256_maskload_ps(from, is_loaded), _mm256_castsi256_ps(is_loaded))};
}
// x * 2^whole for 1 <= x <= 2 and whole >= -126.
FLOAT_INLINE Real times_power_of_two(Real x, Real whole) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole.v), 23);
  return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.v), exponent))};
}
FLOAT_INLINE Real zero_for_nan(Real x) { return {_mm256_and_ps(x.v, _mm256_cmp_ps(x.v, x.v, _CMP_ORD_Q))}; }
// Rounds to the nearest integer, ties away from zero: adds the largest value below 0.5 and truncates.
FLOAT_INLINE Real away_from_zero(Real x) { return round_to_zero(x + with_sign_of(Real::broadcast(0.49999997f), x)); }
// Distance from the nearest integer.
FLOAT_INLINE Real distance(Real x) {
  return magnitude(x - Real{_mm256_round_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)});
}
FLOAT_INLINE void store_limited(std::uint8_t* to, __m256i limited, std::int64_t n) {
  const __m256i words = _mm256_packs_epi32(limited, limited);
  const __m128i half = _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08));
  const __m128i bytes = _mm_packus_epi16(half, half);
  if (n >= Real::kLanes) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
  } else {
    std::uint8_t few[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(few), bytes);
    for (int i = 0; i < n; ++i) to[i] = few[i];
  }
}
// Stores the first n elements, rounded to the nearest integer and saturated to bytes.
FLOAT_INLINE void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
  store_limited(to, _mm256_cvtps_epi32(smaller(x, Real::broadcast(255.0f)).v), n);
}
// Stores the first n elements, rounded to the nearest integer, with offset and limits.
FLOAT_INLINE void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
  const __m256i whole = _mm256_cvtps_epi32(smaller(x, Real::broadcast(0x1p20f)).v);
  const __m256i value = _mm256_add_epi32(whole, _mm256_set1_epi32(form.offset));
  const __m256i low = _mm256_set1_epi32(form.low), high = _mm256_set1_epi32(form.high);
  store_limited(to, _mm256_min_epi32(_mm256_max_epi32(value, low), high), n);
}

}  // namespace
}  // namespace tpuconvert

// These use the definitions above.
#include "int8/quantize/eight_lanes.h"
#include "int8/quantize/quantize_rows_tile.h"

namespace tpuconvert {

const QuantizeRowKernels kQuantizeRowsAvx2 = kKernels;

}  // namespace tpuconvert
