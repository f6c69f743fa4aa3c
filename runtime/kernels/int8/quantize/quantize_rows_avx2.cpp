// Quantization of rows with vectors of 8 lanes.
#include <immintrin.h>

#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Real = __m256;
  using Wide = __m256d;
  using Mask = __m256;
  static constexpr int kCount = 8;

  static Real all(float x) { return _mm256_set1_ps(x); }
  static Real load(const float* from) { return _mm256_loadu_ps(from); }
  static Real load_first(const float* from, std::int64_t n, Real rest) {
    float few[kCount];
    store(few, rest);
    for (int i = 0; i < n; ++i) few[i] = from[i];
    return load(few);
  }
  static void store(float* to, Real x) { _mm256_storeu_ps(to, x); }
  static Real add(Real a, Real b) { return _mm256_add_ps(a, b); }
  static Real subtract(Real a, Real b) { return _mm256_sub_ps(a, b); }
  static Real multiply(Real a, Real b) { return _mm256_mul_ps(a, b); }
  static Real fused(Real a, Real b, Real c) { return _mm256_fmadd_ps(a, b, c); }
  static Real larger(Real a, Real b) { return _mm256_max_ps(a, b); }
  // Splits x into floor(x), as an operand of times_power_of_two, and the fraction x - floor(x). NaN propagates to the
  // fraction.
  static Real split(Real x, Real* fraction) {
    const Real limited = _mm256_max_ps(all(-126.0f), x);
    const Real whole = _mm256_round_ps(limited, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    *fraction = _mm256_sub_ps(limited, whole);
    return whole;
  }
  // x * 2^whole for 1 <= x <= 2 and whole >= -126.
  static Real times_power_of_two(Real x, Real whole) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  }
  static Real magnitude(Real x) { return _mm256_andnot_ps(all(-0.0f), x); }
  static Real smaller(Real a, Real b) { return _mm256_min_ps(a, b); }
  static Real zero_for_nan(Real x) { return _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q)); }
  // Rounds to the nearest integer, ties away from zero: adds the largest value below 0.5 and truncates.
  static Real away_from_zero(Real x) {
    const Real sign = _mm256_and_ps(x, all(-0.0f));
    const Real moved = _mm256_add_ps(x, _mm256_or_ps(sign, all(0.49999997f)));
    return _mm256_round_ps(moved, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  // Distance from the nearest integer.
  static Real distance(Real x) {
    const Real rest = _mm256_sub_ps(x, _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    return _mm256_andnot_ps(all(-0.0f), rest);
  }
  static float largest(Real x) {
    float lanes[kCount];
    store(lanes, x);
    float most = lanes[0];
    for (int i = 1; i < kCount; ++i) most = lanes[i] > most ? lanes[i] : most;
    return most;
  }
  static float sum(Real x) {
    float lanes[kCount];
    store(lanes, x);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }
  static Mask none() { return _mm256_setzero_ps(); }
  static Mask either(Mask a, Mask b) { return _mm256_or_ps(a, b); }
  static Mask is_not_less(Real a, Real b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
  static bool any(Mask error_bound) { return _mm256_movemask_ps(error_bound) != 0; }
  static void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
    store_limited(to, _mm256_cvtps_epi32(_mm256_min_ps(x, all(255.0f))), n);
  }
  static void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_min_ps(x, all(0x1p20f)));
    const __m256i value = _mm256_add_epi32(whole, _mm256_set1_epi32(form.offset));
    store_limited(to, _mm256_min_epi32(_mm256_max_epi32(value, _mm256_set1_epi32(form.low)), _mm256_set1_epi32(form.high)),
                  n);
  }

  static Wide all_wide(double x) { return _mm256_set1_pd(x); }
  static Wide load(const double* from) { return _mm256_loadu_pd(from); }
  static void store(double* to, Wide x) { _mm256_storeu_pd(to, x); }
  static Wide add(Wide a, Wide b) { return _mm256_add_pd(a, b); }
  static Wide subtract(Wide a, Wide b) { return _mm256_sub_pd(a, b); }
  static Wide multiply(Wide a, Wide b) { return _mm256_mul_pd(a, b); }
  static Wide fused(Wide a, Wide b, Wide c) { return _mm256_fmadd_pd(a, b, c); }
  static Wide larger(Wide a, Wide b) { return _mm256_max_pd(a, b); }
  static double sum(Wide x) {
    double lanes[4];
    store(lanes, x);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
  }
  static Wide low_half(Real x) { return _mm256_cvtps_pd(_mm256_castps256_ps128(x)); }
  static Wide high_half(Real x) { return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)); }
  static Real narrow(Wide low, Wide high) { return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)); }
  // x * 2^n for the integer n in the low bits of `shifted`.
  static Wide times_power_of_two(Wide x, Wide shifted) {
    const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(shifted), 52);
    return _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(x), exponent));
  }

 private:
  static void store_limited(std::uint8_t* to, __m256i limited, std::int64_t n) {
    const __m256i words = _mm256_packs_epi32(limited, limited);
    const __m128i half = _mm256_castsi256_si128(_mm256_permute4x64_epi64(words, 0x08));
    const __m128i bytes = _mm_packus_epi16(half, half);
    if (n >= kCount) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to), bytes);
    } else {
      std::uint8_t few[16];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(few), bytes);
      for (int i = 0; i < n; ++i) to[i] = few[i];
    }
  }
};

#include "int8/quantize/quantize_rows.inl"

}  // namespace

bool softmax_quantize_avx2(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  return softmax_row(task, x, y, powers);
}

bool norm_quantize_avx2(const NormQuantizeTask& task, const float* x, std::uint8_t* y) { return norm_row(task, x, y); }

void quantize_row_avx2(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) { to_bytes(to, x, count, y); }

void add_row_avx2(const float* a, const float* b, std::int64_t count, float* sum) { add_row(a, b, count, sum); }

}  // namespace tpuconvert
