// Requantization of rows of sums with vectors of 8 lanes.
#include <immintrin.h>

#include <cstddef>

#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Integer = __m256i;
  static constexpr int kCount = 8;

  static Integer load(const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  // Loads the first n lanes; the others are 0.
  static Integer load_first(const std::int32_t* from, int n) {
    std::int32_t few[kCount] = {};
    __builtin_memcpy(few, from, static_cast<std::size_t>(n) * sizeof(*few));
    return load(few);
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, int bytes) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  static Integer all(std::int32_t value) { return _mm256_set1_epi32(value); }
  static Integer multiply(Integer a, Integer b) { return _mm256_mul_epi32(a, b); }
  static Integer upper(Integer x) { return _mm256_srli_epi64(x, 32); }
  static Integer add_wide(Integer x, std::int64_t value) { return _mm256_add_epi64(x, _mm256_set1_epi64x(value)); }
  static Integer joined(Integer even, Integer odd) {
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
  }
  static Integer add(Integer a, Integer b) { return _mm256_add_epi32(a, b); }
  static Integer subtract(Integer a, Integer b) { return _mm256_sub_epi32(a, b); }
  template <int Bits>
  static Integer shifted_right(Integer x) { return _mm256_srai_epi32(x, Bits); }
  static Integer shifted_right(Integer x, Integer bits) { return _mm256_srav_epi32(x, bits); }
  static Integer shifted_left(Integer x, Integer bits) { return _mm256_sllv_epi32(x, bits); }
  static Integer where_negative(Integer sign, Integer a, Integer b) {
    return _mm256_blendv_epi8(b, a, _mm256_srai_epi32(sign, 31));
  }
  static Integer limited(Integer x, Integer low, Integer high) {
    return _mm256_min_epi32(_mm256_max_epi32(x, low), high);
  }
  // Truncates values to 16 bits. The upper bits are cleared first, so that packing does not saturate.
  static __m128i words(Integer x) {
    const Integer lower = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(lower, lower), 0x08));
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    const __m128i half = words(x);
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(half, half));
  }
  static void store_words(std::uint8_t* out, Integer x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(out), words(x)); }
  static void store_first_words(std::uint8_t* out, Integer x, int n) {
    alignas(16) std::uint8_t results[2 * kCount];
    store_words(results, x);
    copy(out, results, 2 * n);
  }
  static void store(std::uint8_t* out, Integer x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), x); }
  static void store_product(std::uint8_t* out, Integer x, float scale) {
    _mm256_storeu_ps(reinterpret_cast<float*>(out), _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(scale)));
  }
};

#include "int8/epilogue/epilogue_rows.inl"

}  // namespace

RowFunction row_function_avx2(const RowVariant& variant) {
  return variant.rounds_twice ? function_for<true>(variant) : function_for<false>(variant);
}

BlockFunction block_of_rows_avx2(const RowVariant& variant) { return block_for(variant); }

}  // namespace tpuconvert
