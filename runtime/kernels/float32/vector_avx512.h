// Vectors of sixteen float32 or eight float64 elements. Include only in files that are compiled for AVX-512.
#pragma once

// GCC 12 warns about the intentionally undefined operands in its own intrinsics.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstdint>

#define FLOAT_INLINE inline __attribute__((always_inline))

namespace tpuconvert {
namespace {

struct Float {
  static constexpr int kLanes = 16;
  __m512 v;

  FLOAT_INLINE static Float zero() { return {_mm512_setzero_ps()}; }
  FLOAT_INLINE static Float broadcast(float x) { return {_mm512_set1_ps(x)}; }
  FLOAT_INLINE static Float load(const float* from) { return {_mm512_loadu_ps(from)}; }
  // Loads the first n lanes, 0 < n <= kLanes; the others are 0.
  FLOAT_INLINE static Float load_first(const float* from, int n) { return {_mm512_maskz_loadu_ps(first(n), from)}; }
  // Converts kLanes integers.
  FLOAT_INLINE static Float of_integers(const std::uint8_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  FLOAT_INLINE static Float of_integers(const std::uint16_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))))};
  }
  FLOAT_INLINE static Float of_integers(const std::int16_t* from) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))))};
  }
  FLOAT_INLINE void store(float* to) const { _mm512_storeu_ps(to, v); }
  FLOAT_INLINE void store_first(float* to, int n) const { _mm512_mask_storeu_ps(to, first(n), v); }

 private:
  FLOAT_INLINE static __mmask16 first(int n) { return static_cast<__mmask16>(0xFFFFu >> (16 - n)); }
};

struct FloatMask {
  __mmask16 m;
};

FLOAT_INLINE Float fused(Float a, Float b, Float c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b, rounded once.
FLOAT_INLINE Float less_product(Float a, Float b, Float c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
FLOAT_INLINE Float operator+(Float a, Float b) { return {_mm512_add_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator-(Float a, Float b) { return {_mm512_sub_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator*(Float a, Float b) { return {_mm512_mul_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator/(Float a, Float b) { return {_mm512_div_ps(a.v, b.v)}; }
// max(a, b); b if a and b are equal or one of them is NaN.
FLOAT_INLINE Float larger(Float a, Float b) { return {_mm512_max_ps(a.v, b.v)}; }
// min(a, b); b if a and b are equal or one of them is NaN.
FLOAT_INLINE Float smaller(Float a, Float b) { return {_mm512_min_ps(a.v, b.v)}; }
FLOAT_INLINE Float magnitude(Float a) { return {_mm512_abs_ps(a.v)}; }
FLOAT_INLINE Float root(Float a) { return {_mm512_sqrt_ps(a.v)}; }
FLOAT_INLINE Float round_down(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)}; }
FLOAT_INLINE Float round_up(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)}; }
FLOAT_INLINE Float round_to_zero(Float a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}; }
FLOAT_INLINE Float with_sign_of(Float a, Float sign) {
  return {_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(sign.v),
                                                        _mm512_castps_si512(a.v), 0xCA))};
}
FLOAT_INLINE FloatMask operator<(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
FLOAT_INLINE FloatMask operator>=(Float a, Float b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ)}; }
FLOAT_INLINE FloatMask is_nan(Float a) { return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)}; }
FLOAT_INLINE Float select(FloatMask m, Float yes, Float no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }
FLOAT_INLINE bool all(FloatMask m) { return m.m == 0xFFFF; }
// table[i] for the index i in the five lowest bits of each lane.
FLOAT_INLINE Float entry_of(const float (&table)[32], Float index) {
  const __m512 low = _mm512_load_ps(table), high = _mm512_load_ps(table + 16);
  return {_mm512_permutex2var_ps(low, _mm512_castps_si512(index.v), high)};
}
// Like entry_of, with the bits of `index` << 18 added to the bits of the entry.
FLOAT_INLINE Float scaled_entry_of(const std::uint32_t (&table)[32], Float index) {
  const __m512i bits = _mm512_castps_si512(index.v);
  const __m512i low = _mm512_load_si512(table), high = _mm512_load_si512(table + 16);
  const __m512i entry = _mm512_permutex2var_epi32(low, bits, high);
  return {_mm512_castsi512_ps(_mm512_add_epi32(entry, _mm512_slli_epi32(bits, 18)))};
}

struct Double {
  static constexpr int kLanes = 8;
  __m512d v;

  FLOAT_INLINE static Double zero() { return {_mm512_setzero_pd()}; }
  FLOAT_INLINE static Double broadcast(double x) { return {_mm512_set1_pd(x)}; }
  FLOAT_INLINE static Double load(const double* from) { return {_mm512_loadu_pd(from)}; }
  FLOAT_INLINE static Double load(const float* from) { return {_mm512_cvtps_pd(_mm256_loadu_ps(from))}; }
  FLOAT_INLINE void store(double* to) const { _mm512_storeu_pd(to, v); }
  // Rounds each element to float32.
  FLOAT_INLINE void store(float* to) const { _mm256_storeu_ps(to, _mm512_cvtpd_ps(v)); }
};

struct DoubleMask {
  __mmask8 m;
};

FLOAT_INLINE Double fused(Double a, Double b, Double c) { return {_mm512_fmadd_pd(a.v, b.v, c.v)}; }
FLOAT_INLINE Double operator+(Double a, Double b) { return {_mm512_add_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator-(Double a, Double b) { return {_mm512_sub_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator*(Double a, Double b) { return {_mm512_mul_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator/(Double a, Double b) { return {_mm512_div_pd(a.v, b.v)}; }
FLOAT_INLINE Double larger(Double a, Double b) { return {_mm512_max_pd(a.v, b.v)}; }
FLOAT_INLINE Double smaller(Double a, Double b) { return {_mm512_min_pd(a.v, b.v)}; }
FLOAT_INLINE Double magnitude(Double a) { return {_mm512_abs_pd(a.v)}; }
FLOAT_INLINE Double root(Double a) { return {_mm512_sqrt_pd(a.v)}; }
FLOAT_INLINE DoubleMask operator<(Double a, Double b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_LT_OQ)}; }
FLOAT_INLINE DoubleMask operator>=(Double a, Double b) { return {_mm512_cmp_pd_mask(a.v, b.v, _CMP_GE_OQ)}; }
FLOAT_INLINE DoubleMask is_nan(Double a) { return {_mm512_cmp_pd_mask(a.v, a.v, _CMP_UNORD_Q)}; }
FLOAT_INLINE Double select(DoubleMask m, Double yes, Double no) { return {_mm512_mask_blend_pd(m.m, no.v, yes.v)}; }
// Conversions of a register to two float64 registers, and back with one rounding.
FLOAT_INLINE void widen(Float x, Double (&halves)[2]) {
  halves[0].v = _mm512_cvtps_pd(_mm512_castps512_ps256(x.v));
  halves[1].v = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x.v, 1));
}
FLOAT_INLINE Float narrow(const Double (&halves)[2]) {
  const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(halves[0].v));
  return {_mm512_insertf32x8(low, _mm512_cvtpd_ps(halves[1].v), 1)};
}
// a * 2^n for the integer n in the low bits of `shifted` = n + 1.5 * 2^52. The result must not overflow or be
// subnormal.
FLOAT_INLINE Double times_power_of_two(Double a, Double shifted) {
  const __m512i exponent = _mm512_slli_epi64(_mm512_castpd_si512(shifted.v), 52);
  return {_mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(a.v), exponent))};
}
// Mantissa and exponent of a positive normal value: a = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)).
FLOAT_INLINE Double split_exponent(Double a, Double* exponent) {
  const __m512i bits = _mm512_sub_epi64(_mm512_castpd_si512(a.v), _mm512_set1_epi64(0x3FE6A09E667F3BCD));
  const __m512i power = _mm512_srai_epi64(bits, 52);
  exponent->v = _mm512_cvtepi64_pd(power);
  return {_mm512_castsi512_pd(_mm512_sub_epi64(_mm512_castpd_si512(a.v), _mm512_slli_epi64(power, 52)))};
}

}  // namespace
}  // namespace tpuconvert
