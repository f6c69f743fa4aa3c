// Vectors of 8 lanes for integer recurrent layers, without the dot product. Include after <immintrin.h>.
#pragma once

#include <cstdint>

namespace tpuconvert {
namespace {

struct Lanes256 {
  using V = __m256i;
  static constexpr int kLanes = 8;

  static V broadcast(std::int32_t x) { return _mm256_set1_epi32(x); }
  static V load(const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  static void store(std::int32_t* to, V x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x); }
  static V load_words(const std::int16_t* from) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // Lanes are in the range of unsigned 16-bit integers.
  static __m128i words(V x) {
    return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  }
  static void store_words(std::int16_t* to, V x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), words(x)); }
  static void store_bytes(std::uint8_t* to, V x) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(words(x), _mm_setzero_si128()));
  }
  static V add(V a, V b) { return _mm256_add_epi32(a, b); }
  static V subtract(V a, V b) { return _mm256_sub_epi32(a, b); }
  static V multiply(V a, V b) { return _mm256_mullo_epi32(a, b); }
  static V smaller(V a, V b) { return _mm256_min_epi32(a, b); }
  static V larger(V a, V b) { return _mm256_max_epi32(a, b); }
  static V bit_and(V a, V b) { return _mm256_and_si256(a, b); }
  static V sign(V x) { return _mm256_srai_epi32(x, 31); }
  static V negative_if_positive(V x) { return _mm256_cmpgt_epi32(x, _mm256_setzero_si256()); }
  static V shift_right(V x, int bits) { return _mm256_sra_epi32(x, _mm_cvtsi32_si128(bits)); }
  static V shift_right_by(V x, V bits) { return _mm256_srav_epi32(x, bits); }
  static V shift_left_by(V x, V bits) { return _mm256_sllv_epi32(x, bits); }
  // (a * b + 2^30) >> 31
  static V multiply_high(V a, V b) {
    const V half = _mm256_set1_epi64x(std::int64_t{1} << 30);
    const V even = _mm256_add_epi64(_mm256_mul_epi32(a, b), half);
    const V odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)), half);
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
  }
  static V gather(const std::int16_t* table, V index) {
    const V found = _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 2);
    return _mm256_srai_epi32(_mm256_slli_epi32(found, 16), 16);
  }
};

}  // namespace
}  // namespace tpuconvert
