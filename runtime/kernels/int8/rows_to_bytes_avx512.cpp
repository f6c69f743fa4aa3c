// Rows to bytes in vectors of 16.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "int8/rows_to_bytes.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Real = __m512;
  using Doubt = __mmask16;
  static constexpr int kCount = 16;

  static Real all(float x) { return _mm512_set1_ps(x); }
  static Real load(const float* from) { return _mm512_loadu_ps(from); }
  // The others are minus infinity.
  static Real load_first(const float* from, std::int64_t n) {
    return _mm512_mask_loadu_ps(all(-__builtin_inff()), first(n), from);
  }
  static void store(float* to, Real x) { _mm512_storeu_ps(to, x); }
  static Real add(Real a, Real b) { return _mm512_add_ps(a, b); }
  static Real multiply(Real a, Real b) { return _mm512_mul_ps(a, b); }
  static Real fused(Real a, Real b, Real c) { return _mm512_fmadd_ps(a, b, c); }
  static Real larger(Real a, Real b) { return _mm512_max_ps(a, b); }
  // The next whole number below, as times_power_of_two takes it, and what is above it.
  static Real split(Real x, Real* fraction) {
    *fraction = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    return x;
  }
  static Real times_power_of_two(Real x, Real whole) { return _mm512_scalef_ps(x, whole); }
  // From the nearest whole number.
  static Real distance(Real x) { return _mm512_abs_ps(_mm512_reduce_ps(x, _MM_FROUND_TO_NEAREST_INT)); }
  static float largest(Real x) { return _mm512_reduce_max_ps(x); }
  static float sum(Real x) { return _mm512_reduce_add_ps(x); }
  static Doubt none() { return 0; }
  static Doubt either(Doubt a, Doubt b) { return static_cast<Doubt>(a | b); }
  static Doubt is_not_less(Real a, Real b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ); }
  static bool any(Doubt doubt) { return doubt != 0; }
  // Nearest whole numbers. What does not fit 32 bits is -2^31, which is far above everything as an unsigned number.
  static void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
    _mm512_mask_cvtusepi32_storeu_epi8(to, first(n), _mm512_cvtps_epi32(x));
  }
  static void store_bytes(std::uint8_t* to, Real x, const ToBytes& form, std::int64_t n) {
    const __m512i whole = _mm512_cvtps_epi32(_mm512_min_ps(x, all(0x1p20f)));
    const __m512i value = _mm512_add_epi32(whole, _mm512_set1_epi32(form.offset));
    const __m512i limited =
        _mm512_min_epi32(_mm512_max_epi32(value, _mm512_set1_epi32(form.low)), _mm512_set1_epi32(form.high));
    _mm512_mask_cvtepi32_storeu_epi8(to, first(n), limited);
  }

 private:
  static __mmask16 first(std::int64_t n) { return n >= kCount ? 0xFFFF : static_cast<__mmask16>((1u << n) - 1); }
};

#include "int8/rows_to_bytes.inl"

}  // namespace

bool softmax_bytes_avx512(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers) {
  return is_plain(task.to) ? softmax_row<true>(task, x, y, powers) : softmax_row<false>(task, x, y, powers);
}

}  // namespace tpuconvert
