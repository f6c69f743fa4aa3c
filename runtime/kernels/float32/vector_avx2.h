// Vectors of eight float32 or four float64 elements. Include only in files that are compiled for AVX2 with FMA.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define FLOAT_INLINE inline __attribute__((always_inline))

namespace tpuconvert {
namespace {

struct Float {
  static constexpr int kLanes = 8;
  __m256 v;

  FLOAT_INLINE static Float zero() { return {_mm256_setzero_ps()}; }
  FLOAT_INLINE static Float broadcast(float x) { return {_mm256_set1_ps(x)}; }
  FLOAT_INLINE static Float load(const float* from) { return {_mm256_loadu_ps(from)}; }
  // Loads the first n lanes, 0 < n <= kLanes; the others are 0.
  FLOAT_INLINE static Float load_first(const float* from, int n) { return {_mm256_maskload_ps(from, first(n))}; }
  // Converts kLanes integers.
  FLOAT_INLINE static Float of_integers(const std::uint8_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))))};
  }
  FLOAT_INLINE static Float of_integers(const std::uint16_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  FLOAT_INLINE static Float of_integers(const std::int16_t* from) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))))};
  }
  FLOAT_INLINE void store(float* to) const { _mm256_storeu_ps(to, v); }
  FLOAT_INLINE void store_first(float* to, int n) const { _mm256_maskstore_ps(to, first(n), v); }

 private:
  FLOAT_INLINE static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

struct FloatMask {
  __m256 m;
};

FLOAT_INLINE Float fused(Float a, Float b, Float c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b, rounded once.
FLOAT_INLINE Float less_product(Float a, Float b, Float c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
FLOAT_INLINE Float operator+(Float a, Float b) { return {_mm256_add_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator-(Float a, Float b) { return {_mm256_sub_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator*(Float a, Float b) { return {_mm256_mul_ps(a.v, b.v)}; }
FLOAT_INLINE Float operator/(Float a, Float b) { return {_mm256_div_ps(a.v, b.v)}; }
// max(a, b); b if a and b are equal or one of them is NaN.
FLOAT_INLINE Float larger(Float a, Float b) { return {_mm256_max_ps(a.v, b.v)}; }
// min(a, b); b if a and b are equal or one of them is NaN.
FLOAT_INLINE Float smaller(Float a, Float b) { return {_mm256_min_ps(a.v, b.v)}; }
FLOAT_INLINE Float magnitude(Float a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }
FLOAT_INLINE Float root(Float a) { return {_mm256_sqrt_ps(a.v)}; }
FLOAT_INLINE Float round_down(Float a) { return {_mm256_floor_ps(a.v)}; }
FLOAT_INLINE Float round_up(Float a) { return {_mm256_ceil_ps(a.v)}; }
FLOAT_INLINE Float round_to_zero(Float a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)}; }
FLOAT_INLINE Float with_sign_of(Float a, Float sign) {
  return {_mm256_or_ps(magnitude(a).v, _mm256_and_ps(_mm256_set1_ps(-0.0f), sign.v))};
}
FLOAT_INLINE FloatMask operator<(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ)}; }
FLOAT_INLINE FloatMask operator>=(Float a, Float b) { return {_mm256_cmp_ps(a.v, b.v, _CMP_GE_OQ)}; }
FLOAT_INLINE FloatMask is_nan(Float a) { return {_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q)}; }
FLOAT_INLINE Float select(FloatMask m, Float yes, Float no) { return {_mm256_blendv_ps(no.v, yes.v, m.m)}; }
FLOAT_INLINE bool all(FloatMask m) { return _mm256_movemask_ps(m.m) == 0xFF; }
// table[i] for the index i in the five lowest bits of each lane. The shifts move an index bit to the sign bit, which
// selects in a blend.
FLOAT_INLINE Float entry_of(const float* table, Float index) {
  const __m256i bits = _mm256_castps_si256(index.v);
  const auto among_eight = [&](int first) __attribute__((always_inline)) {
    return _mm256_permutevar8x32_ps(_mm256_load_ps(table + first), bits);
  };
  const __m256 is_upper_eight = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 28));
  const __m256 is_upper_half = _mm256_castsi256_ps(_mm256_slli_epi32(bits, 27));
  const __m256 low = _mm256_blendv_ps(among_eight(0), among_eight(8), is_upper_eight);
  const __m256 high = _mm256_blendv_ps(among_eight(16), among_eight(24), is_upper_eight);
  return {_mm256_blendv_ps(low, high, is_upper_half)};
}
// Like entry_of, with the bits of `index` << 18 added to the bits of the entry.
FLOAT_INLINE Float scaled_entry_of(const std::uint32_t (&table)[32], Float index) {
  const __m256i entry = _mm256_castps_si256(entry_of(reinterpret_cast<const float*>(table), index).v);
  return {_mm256_castsi256_ps(_mm256_add_epi32(entry, _mm256_slli_epi32(_mm256_castps_si256(index.v), 18)))};
}

struct Double {
  static constexpr int kLanes = 4;
  __m256d v;

  FLOAT_INLINE static Double zero() { return {_mm256_setzero_pd()}; }
  FLOAT_INLINE static Double broadcast(double x) { return {_mm256_set1_pd(x)}; }
  FLOAT_INLINE static Double load(const double* from) { return {_mm256_loadu_pd(from)}; }
  FLOAT_INLINE static Double load(const float* from) { return {_mm256_cvtps_pd(_mm_loadu_ps(from))}; }
  FLOAT_INLINE void store(double* to) const { _mm256_storeu_pd(to, v); }
  // Rounds each element to float32.
  FLOAT_INLINE void store(float* to) const { _mm_storeu_ps(to, _mm256_cvtpd_ps(v)); }
};

struct DoubleMask {
  __m256d m;
};

FLOAT_INLINE Double fused(Double a, Double b, Double c) { return {_mm256_fmadd_pd(a.v, b.v, c.v)}; }
FLOAT_INLINE Double operator+(Double a, Double b) { return {_mm256_add_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator-(Double a, Double b) { return {_mm256_sub_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator*(Double a, Double b) { return {_mm256_mul_pd(a.v, b.v)}; }
FLOAT_INLINE Double operator/(Double a, Double b) { return {_mm256_div_pd(a.v, b.v)}; }
FLOAT_INLINE Double larger(Double a, Double b) { return {_mm256_max_pd(a.v, b.v)}; }
FLOAT_INLINE Double smaller(Double a, Double b) { return {_mm256_min_pd(a.v, b.v)}; }
FLOAT_INLINE Double magnitude(Double a) { return {_mm256_andnot_pd(_mm256_set1_pd(-0.0), a.v)}; }
FLOAT_INLINE Double root(Double a) { return {_mm256_sqrt_pd(a.v)}; }
FLOAT_INLINE DoubleMask operator<(Double a, Double b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_LT_OQ)}; }
FLOAT_INLINE DoubleMask operator>=(Double a, Double b) { return {_mm256_cmp_pd(a.v, b.v, _CMP_GE_OQ)}; }
FLOAT_INLINE DoubleMask is_nan(Double a) { return {_mm256_cmp_pd(a.v, a.v, _CMP_UNORD_Q)}; }
FLOAT_INLINE Double select(DoubleMask m, Double yes, Double no) { return {_mm256_blendv_pd(no.v, yes.v, m.m)}; }
// Conversions of a register to two float64 registers, and back with one rounding.
FLOAT_INLINE void widen(Float x, Double (&halves)[2]) {
  halves[0].v = _mm256_cvtps_pd(_mm256_castps256_ps128(x.v));
  halves[1].v = _mm256_cvtps_pd(_mm256_extractf128_ps(x.v, 1));
}
FLOAT_INLINE Float narrow(const Double (&halves)[2]) {
  const __m256 low = _mm256_castps128_ps256(_mm256_cvtpd_ps(halves[0].v));
  return {_mm256_insertf128_ps(low, _mm256_cvtpd_ps(halves[1].v), 1)};
}
// a * 2^n for the integer n in the low bits of `shifted` = n + 1.5 * 2^52. The result must not overflow or be
// subnormal.
FLOAT_INLINE Double times_power_of_two(Double a, Double shifted) {
  const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(shifted.v), 52);
  return {_mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(a.v), exponent))};
}
// Mantissa and exponent of a positive normal value: a = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)).
FLOAT_INLINE Double split_exponent(Double a, Double* exponent) {
  const __m256i bits = _mm256_sub_epi64(_mm256_castpd_si256(a.v), _mm256_set1_epi64x(0x3FE6A09E667F3BCD));
  // the exponent, in both 32-bit halves of a lane
  const __m256i high = _mm256_srai_epi32(_mm256_shuffle_epi32(bits, 0xF5), 20);
  const __m256i power = _mm256_slli_epi64(high, 52);
  // |exponent| < 2^11, so that 1.5 * 2^52 + exponent is exact, with the exponent in its low bits.
  const __m256i wide = _mm256_blend_epi32(high, _mm256_srai_epi32(high, 31), 0xAA);
  const __m256i low = _mm256_add_epi64(_mm256_castpd_si256(_mm256_set1_pd(6755399441055744.0)), wide);
  exponent->v = _mm256_sub_pd(_mm256_castsi256_pd(low), _mm256_set1_pd(6755399441055744.0));
  return {_mm256_castsi256_pd(_mm256_sub_epi64(_mm256_castpd_si256(a.v), power))};
}

}  // namespace
}  // namespace tpuconvert
