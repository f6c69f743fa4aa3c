// Byte vectors of a block of channels, and interleaving of four rows. Only for files compiled for AVX512-VNNI.
#pragma once

#include "int8/depthwise/depthwise.h"
#include "int8/tile/lanes.h"

namespace tpuconvert::avx512 {
namespace {

template <int Width>
struct Block;

template <>
struct Block<64> {
  using Vector = __m512i;
  static TPU_INLINE Vector load(const void* from) { return _mm512_loadu_si512(from); }
  static TPU_INLINE Vector low_bytes(Vector a, Vector b) { return _mm512_unpacklo_epi8(a, b); }
  static TPU_INLINE Vector high_bytes(Vector a, Vector b) { return _mm512_unpackhi_epi8(a, b); }
  static TPU_INLINE Vector low_words(Vector a, Vector b) { return _mm512_unpacklo_epi16(a, b); }
  static TPU_INLINE Vector high_words(Vector a, Vector b) { return _mm512_unpackhi_epi16(a, b); }
  static TPU_INLINE __m512i widened(Vector a) { return a; }
};

template <>
struct Block<32> {
  using Vector = __m256i;
  static TPU_INLINE Vector load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i_u*>(from)); }
  static TPU_INLINE Vector low_bytes(Vector a, Vector b) { return _mm256_unpacklo_epi8(a, b); }
  static TPU_INLINE Vector high_bytes(Vector a, Vector b) { return _mm256_unpackhi_epi8(a, b); }
  static TPU_INLINE Vector low_words(Vector a, Vector b) { return _mm256_unpacklo_epi16(a, b); }
  static TPU_INLINE Vector high_words(Vector a, Vector b) { return _mm256_unpackhi_epi16(a, b); }
  static TPU_INLINE __m512i widened(Vector a) { return _mm512_castsi256_si512(a); }
};

template <>
struct Block<16> {
  using Vector = __m128i;
  static TPU_INLINE Vector load(const void* from) { return _mm_loadu_si128(static_cast<const __m128i_u*>(from)); }
  static TPU_INLINE Vector low_bytes(Vector a, Vector b) { return _mm_unpacklo_epi8(a, b); }
  static TPU_INLINE Vector high_bytes(Vector a, Vector b) { return _mm_unpackhi_epi8(a, b); }
  static TPU_INLINE Vector low_words(Vector a, Vector b) { return _mm_unpacklo_epi16(a, b); }
  static TPU_INLINE Vector high_words(Vector a, Vector b) { return _mm_unpackhi_epi16(a, b); }
  static TPU_INLINE __m512i widened(Vector a) { return _mm512_castsi128_si512(a); }
};

// One input column of a block, with four vertical taps in every dword.
template <int Width>
struct Column {
  typename Block<Width>::Vector v[kVectors];
};

template <int Width>
TPU_INLINE Column<Width> interleaved(typename Block<Width>::Vector a, typename Block<Width>::Vector b,
                                     typename Block<Width>::Vector c, typename Block<Width>::Vector d) {
  using B = Block<Width>;
  const auto ab_low = B::low_bytes(a, b), ab_high = B::high_bytes(a, b);
  const auto cd_low = B::low_bytes(c, d), cd_high = B::high_bytes(c, d);
  return {{B::low_words(ab_low, cd_low), B::high_words(ab_low, cd_low), B::low_words(ab_high, cd_high),
           B::high_words(ab_high, cd_high)}};
}

// Stores sums of one pixel in channel order.
template <int Width>
TPU_INLINE void store_sums(std::int32_t* to, __m512i sum, int v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 4 * v), _mm512_castsi512_si128(sum));
  if constexpr (Width >= 32)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16 + 4 * v), _mm512_extracti32x4_epi32(sum, 1));
  if constexpr (Width == 64) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 32 + 4 * v), _mm512_extracti32x4_epi32(sum, 2));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 48 + 4 * v), _mm512_extracti32x4_epi32(sum, 3));
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
