// Rows to bytes in vectors of 8.
#include <immintrin.h>

#include "int8/rows_to_bytes.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Real = __m256;
  using Doubt = __m256;
  static constexpr int kCount = 8;

  static Real all(float x) { return _mm256_set1_ps(x); }
  static Real load(const float* from) { return _mm256_loadu_ps(from); }
  // The others are minus infinity.
  static Real load_first(const float* from, std::int64_t n) {
    float few[kCount];
    for (int i = 0; i < kCount; ++i) few[i] = i < n ? from[i] : -__builtin_inff();
    return load(few);
  }
  static void store(float* to, Real x) { _mm256_storeu_ps(to, x); }
  static Real add(Real a, Real b) { return _mm256_add_ps(a, b); }
  static Real multiply(Real a, Real b) { return _mm256_mul_ps(a, b); }
  static Real fused(Real a, Real b, Real c) { return _mm256_fmadd_ps(a, b, c); }
  static Real larger(Real a, Real b) { return _mm256_max_ps(a, b); }
  // The next whole number below, as times_power_of_two takes it, and what is above it. NaN stays in the fraction.
  static Real split(Real x, Real* fraction) {
    const Real limited = _mm256_max_ps(all(-126.0f), x);
    const Real whole = _mm256_round_ps(limited, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    *fraction = _mm256_sub_ps(limited, whole);
    return whole;
  }
  // x is 1 to 2 and `whole` -126 at least.
  static Real times_power_of_two(Real x, Real whole) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
  }
  // From the nearest whole number.
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
  static Doubt none() { return _mm256_setzero_ps(); }
  static Doubt either(Doubt a, Doubt b) { return _mm256_or_ps(a, b); }
  static Doubt is_not_less(Real a, Real b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
  static bool any(Doubt doubt) { return _mm256_movemask_ps(doubt) != 0; }
  static void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
    store_limited(to, _mm256_cvtps_epi32(_mm256_min_ps(x, all(255.0f))), n);
  }
  static void store_bytes(std::uint8_t* to, Real x, const ToBytes& form, std::int64_t n) {
    const __m256i whole = _mm256_cvtps_epi32(_mm256_min_ps(x, all(0x1p20f)));
    const __m256i value = _mm256_add_epi32(whole, _mm256_set1_epi32(form.offset));
    store_limited(to, _mm256_min_epi32(_mm256_max_epi32(value, _mm256_set1_epi32(form.low)), _mm256_set1_epi32(form.high)),
                  n);
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

#include "int8/rows_to_bytes.inl"

}  // namespace

bool softmax_bytes_avx2(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers) {
  return is_plain(task.to) ? softmax_row<true>(task, x, y, powers) : softmax_row<false>(task, x, y, powers);
}

}  // namespace tpuconvert
