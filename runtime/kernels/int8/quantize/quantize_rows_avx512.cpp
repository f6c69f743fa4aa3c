// Quantization of rows with vectors of 16 lanes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Real = __m512;
  using Wide = __m512d;
  using Mask = __mmask16;
  static constexpr int kCount = 16;

  static Real all(float x) { return _mm512_set1_ps(x); }
  static Real load(const float* from) { return _mm512_loadu_ps(from); }
  static Real load_first(const float* from, std::int64_t n, Real rest) {
    return _mm512_mask_loadu_ps(rest, first(n), from);
  }
  static void store(float* to, Real x) { _mm512_storeu_ps(to, x); }
  static Real add(Real a, Real b) { return _mm512_add_ps(a, b); }
  static Real subtract(Real a, Real b) { return _mm512_sub_ps(a, b); }
  static Real multiply(Real a, Real b) { return _mm512_mul_ps(a, b); }
  static Real fused(Real a, Real b, Real c) { return _mm512_fmadd_ps(a, b, c); }
  static Real larger(Real a, Real b) { return _mm512_max_ps(a, b); }
  // Splits x into an operand of times_power_of_two, which scales by 2^floor(x), and the fraction x - floor(x).
  static Real split(Real x, Real* fraction) {
    *fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    return x;
  }
  static Real times_power_of_two(Real x, Real whole) { return _mm512_scalef_ps(x, whole); }
  static Real magnitude(Real x) { return _mm512_abs_ps(x); }
  static Real smaller(Real a, Real b) { return _mm512_min_ps(a, b); }
  static Real zero_for_nan(Real x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, x, _CMP_ORD_Q), x); }
  // Rounds to the nearest integer, ties away from zero: adds the largest value below 0.5 and truncates.
  static Real away_from_zero(Real x) {
    const Real sign = _mm512_and_ps(x, all(-0.0f));
    const Real moved = _mm512_add_ps(x, _mm512_or_ps(sign, all(0.49999997f)));
    return _mm512_roundscale_ps(moved, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
  }
  // Distance from the nearest integer.
  static Real distance(Real x) { return _mm512_abs_ps(_mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT)); }
  static float largest(Real x) { return _mm512_reduce_max_ps(x); }
  static float sum(Real x) { return _mm512_reduce_add_ps(x); }
  static Mask none() { return 0; }
  static Mask either(Mask a, Mask b) { return static_cast<Mask>(a | b); }
  static Mask is_not_less(Real a, Real b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
  static bool any(Mask error_bound) { return error_bound != 0; }
  // Rounds to the nearest integer and saturates to bytes. Values that do not fit 32 bits convert to -2^31, which
  // saturates to 255 as an unsigned integer.
  static void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
    _mm512_mask_cvtusepi32_storeu_epi8(to, first(n), _mm512_cvtps_epi32(x));
  }
  static void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
    const __m512i whole = _mm512_cvtps_epi32(_mm512_min_ps(x, all(0x1p20f)));
    const __m512i value = _mm512_add_epi32(whole, _mm512_set1_epi32(form.offset));
    const __m512i limited =
        _mm512_min_epi32(_mm512_max_epi32(value, _mm512_set1_epi32(form.low)), _mm512_set1_epi32(form.high));
    _mm512_mask_cvtepi32_storeu_epi8(to, first(n), limited);
  }

  static Wide all_wide(double x) { return _mm512_set1_pd(x); }
  static Wide load(const double* from) { return _mm512_loadu_pd(from); }
  static void store(double* to, Wide x) { _mm512_storeu_pd(to, x); }
  static Wide add(Wide a, Wide b) { return _mm512_add_pd(a, b); }
  static Wide subtract(Wide a, Wide b) { return _mm512_sub_pd(a, b); }
  static Wide multiply(Wide a, Wide b) { return _mm512_mul_pd(a, b); }
  static Wide fused(Wide a, Wide b, Wide c) { return _mm512_fmadd_pd(a, b, c); }
  static Wide larger(Wide a, Wide b) { return _mm512_max_pd(a, b); }
  static double sum(Wide x) { return _mm512_reduce_add_pd(x); }
  static Wide low_half(Real x) { return _mm512_cvtps_pd(_mm512_castps512_ps256(x)); }
  static Wide high_half(Real x) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)); }
  static Real narrow(Wide low, Wide high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high), 1);
  }
  // x * 2^n for the integer n in the low bits of `shifted`.
  static Wide times_power_of_two(Wide x, Wide shifted) {
    const __m512i exponent = _mm512_slli_epi64(_mm512_castpd_si512(shifted), 52);
    return _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(x), exponent));
  }

 private:
  static __mmask16 first(std::int64_t n) { return n >= kCount ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1); }
};

#include "int8/quantize/quantize_rows.inl"

}  // namespace

bool softmax_quantize_avx512(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  return softmax_row(task, x, y, powers);
}

bool norm_quantize_avx512(const NormQuantizeTask& task, const float* x, std::uint8_t* y) { return norm_row(task, x, y); }

void quantize_row_avx512(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) { to_bytes(to, x, count, y); }

void add_row_avx512(const float* a, const float* b, std::int64_t count, float* sum) { add_row(a, b, count, sum); }

}  // namespace tpuconvert
