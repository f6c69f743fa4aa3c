// Quantization of rows with vectors of 16 lanes.
#include "float32/vector_avx512.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

using Real = Float;
using Wide = Double;
using Mask = FloatMask;

FLOAT_INLINE Mask all_lanes() { return {0xFFFF}; }
FLOAT_INLINE Mask both(Mask a, Mask b) { return {static_cast<__mmask16>(a.m & b.m)}; }
FLOAT_INLINE __mmask16 first_lanes(std::int64_t n) {
  return n >= Real::kLanes ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1);
}
// Loads the first n lanes; the others are those of `rest`.
FLOAT_INLINE Real load_first(const float* from, std::int64_t n, Real rest) {
  return {_mm512_mask_loadu_ps(rest.v, first_lanes(n), from)};
}
// Splits x into an operand of times_power_of_two, which scales by 2^floor(x), and the fraction x - floor(x).
FLOAT_INLINE Real split(Real x, Real* fraction) {
  *fraction = {_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEG_INF)};
  return x;
}
FLOAT_INLINE Real times_power_of_two(Real x, Real whole) { return {_mm512_scalef_ps(x.v, whole.v)}; }
FLOAT_INLINE Real zero_for_nan(Real x) { return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, x.v, _CMP_ORD_Q), x.v)}; }
// Rounds to the nearest integer, ties away from zero: adds the largest value below 0.5 and truncates.
FLOAT_INLINE Real away_from_zero(Real x) { return round_to_zero(x + with_sign_of(Real::broadcast(0.49999997f), x)); }
// Distance from the nearest integer.
FLOAT_INLINE Real distance(Real x) { return magnitude(Real{_mm512_reduce_ps(x.v, _MM_FROUND_TO_NEAREST_INT)}); }
FLOAT_INLINE float largest_of(Real x) { return _mm512_reduce_max_ps(x.v); }
FLOAT_INLINE float sum_of(Real x) { return _mm512_reduce_add_ps(x.v); }
FLOAT_INLINE double sum_of(Wide x) { return _mm512_reduce_add_pd(x.v); }

// Stores the first n elements, rounded to the nearest integer and saturated to bytes. Values that do not fit 32 bits
// convert to -2^31, which saturates to 255 as an unsigned integer.
FLOAT_INLINE void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
  _mm512_mask_cvtusepi32_storeu_epi8(to, first_lanes(n), _mm512_cvtps_epi32(x.v));
}
// Stores the first n elements, rounded to the nearest integer, with offset and limits.
FLOAT_INLINE void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
  const __m512i whole = _mm512_cvtps_epi32(smaller(x, Real::broadcast(0x1p20f)).v);
  const __m512i value = _mm512_add_epi32(whole, _mm512_set1_epi32(form.offset));
  const __m512i low = _mm512_set1_epi32(form.low), high = _mm512_set1_epi32(form.high);
  _mm512_mask_cvtepi32_storeu_epi8(to, first_lanes(n), _mm512_min_epi32(_mm512_max_epi32(value, low), high));
}

}  // namespace
}  // namespace tpuconvert

// Uses these definitions.
#include "int8/quantize/quantize_rows_tile.h"

namespace tpuconvert {

const QuantizeRowKernels kQuantizeRowsAvx512 = kKernels;

}  // namespace tpuconvert
