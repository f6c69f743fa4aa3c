// The 16-bit convolution with vectors of 16 lanes.
#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

struct Lanes {
  using Integer = __m512i;
  static constexpr int kCount = 16;
  static constexpr int kRows = 12;

  static Integer load(const void* from) { return _mm512_loadu_si512(from); }
  static Integer all(std::int32_t value) { return _mm512_set1_epi32(value); }
  // Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
  // when the step is made.
  static Integer add_products(Integer sum, Integer x, Integer w) { return _mm512_dpwssd_epi32(sum, x, w); }
  static Integer requantized(Integer x, const Requantization& r, int) {
    const Integer multiplier = load(r.multiplier);
    const Integer even = _mm512_mul_epi32(x, multiplier);
    const Integer odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(multiplier, 32));
    const Integer low = _mm512_srlv_epi64(_mm512_add_epi64(even, load(r.half[0])), load(r.shift[0]));
    const Integer high = _mm512_srlv_epi64(_mm512_add_epi64(odd, load(r.half[1])), load(r.shift[1]));
    return _mm512_add_epi32(_mm512_mask_shuffle_epi32(low, 0xAAAA, high, _MM_PERM_CCAA), load(r.addend));
  }
  static Integer limited(Integer x, std::int32_t low, std::int32_t high) {
    return _mm512_min_epi32(_mm512_max_epi32(x, all(low)), all(high));
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(x));
  }
  static void store_words(std::uint8_t* out, Integer x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(x));
  }
  static void store_reals(std::uint8_t* out, Integer x, std::int32_t zero, float scale) {
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(x, all(zero))), _mm512_set1_ps(scale)));
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) {  // fewer than 64
    const __mmask64 mask = (__mmask64{1} << bytes) - 1;
    _mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
  }
  static void store(std::int32_t* to, Integer x) { _mm512_storeu_si512(to, x); }
  static Integer load_words(const std::int16_t* from) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Integer pair_of(Integer x) {
    const Integer value = _mm512_min_epi32(x, all(32639));
    const Integer byte = _mm512_slli_epi32(_mm512_srai_epi32(_mm512_add_epi32(value, all(128)), 8), 16);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, value, byte);
  }
};

#include "int16/conv_kernels.inl"

}  // namespace

const Functions& functions_avx512vnni() {
  static constexpr Functions kFunctions{Lanes::kRows, multiply, depthwise, expand_words, expand_bytes};
  return kFunctions;
}

}  // namespace tpuconvert::int16
#endif
