// Vectors of 8 lanes for integer kernels. Include only in files that are compiled for AVX2.
//
// The headers of this folder define the same operations for each instruction set. A kernel states its loop once with
// them; a file per instruction set derives a type with the operations that only this kernel has.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tpuconvert {
namespace {

struct Lanes256 {
  using V = __m256i;
  using Wide = __m256i;   // 64-bit products of half of the lanes
  using Pairs = __m256i;  // kVectors * kLanes pairs of 16-bit values
  using Bytes = __m256i;  // kBytes elements
  static constexpr int kLanes = 8, kVectors = 1, kBytes = 32, kGroups = kBytes / (kVectors * kLanes);

  static V broadcast(std::int32_t x) { return _mm256_set1_epi32(x); }
  static V load(const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
  // Loads the first n lanes; the others are 0.
  static V load_first(const std::int32_t* from, int n) {
    std::int32_t few[kLanes] = {};
    __builtin_memcpy(few, from, static_cast<std::size_t>(n) * sizeof(*few));
    return load(few);
  }
  static void store(void* to, V x) { _mm256_storeu_si256(static_cast<__m256i*>(to), x); }
  static V load_words(const std::int16_t* from) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // Lanes are in the range of unsigned 16-bit integers.
  static void store_words(void* to, V x) { _mm_storeu_si128(static_cast<__m128i*>(to), words(x)); }
  // Stores the low 16 bits of lanes: of all, and of the first n.
  static void store_low_words(void* to, V x) { store_words(to, bit_and(x, broadcast(0xFFFF))); }
  static void store_low_words(void* to, V x, int n) {
    std::uint8_t results[2 * kLanes];
    store_low_words(results, x);
    copy(to, results, 2 * n);
  }
  // Lanes are in 0..255.
  static void store_bytes(void* to, V x) { _mm_storel_epi64(static_cast<__m128i*>(to), bytes(x)); }
  // Stores the first n lanes, n < kLanes.
  static void store_bytes(std::uint8_t* to, V x, int n) {
    auto few = static_cast<std::uint64_t>(_mm_cvtsi128_si64(bytes(x)));
    for (int i = 0; i < n; ++i, few >>= 8) to[i] = static_cast<std::uint8_t>(few);
  }
  // Rounds to float32, and multiplies.
  static void store_product(void* to, V x, float scale) {
    _mm256_storeu_ps(static_cast<float*>(to), _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(scale)));
  }
  // Copies at most 4 * kLanes bytes.
  static void copy(void* to, const void* from, int bytes) {
    __builtin_memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  static V add(V a, V b) { return _mm256_add_epi32(a, b); }
  static V subtract(V a, V b) { return _mm256_sub_epi32(a, b); }
  static V multiply(V a, V b) { return _mm256_mullo_epi32(a, b); }
  static V smaller(V a, V b) { return _mm256_min_epi32(a, b); }
  static V larger(V a, V b) { return _mm256_max_epi32(a, b); }
  static V bit_and(V a, V b) { return _mm256_and_si256(a, b); }
  static V sign(V x) { return _mm256_srai_epi32(x, 31); }
  static V negative_if_positive(V x) { return _mm256_cmpgt_epi32(x, _mm256_setzero_si256()); }
  // sign < 0 ? a : b
  static V where_negative(V sign_of, V a, V b) { return _mm256_blendv_epi8(b, a, sign(sign_of)); }
  static V shift_right(V x, int bits) { return _mm256_sra_epi32(x, _mm_cvtsi32_si128(bits)); }
  static V shift_right_by(V x, V bits) { return _mm256_srav_epi32(x, bits); }
  static V shift_left_by(V x, V bits) { return _mm256_sllv_epi32(x, bits); }
  // (x + 1) >> 1, for x < 2^31 - 1.
  static V half_up(V x) { return _mm256_srai_epi32(add(x, broadcast(1)), 1); }
  static V gather(const std::int16_t* table, V index) {
    const V entries = _mm256_i32gather_epi32(reinterpret_cast<const int*>(table), index, 2);
    return _mm256_srai_epi32(_mm256_slli_epi32(entries, 16), 16);
  }

  // Half 0 has the even lanes, half 1 the odd ones. `wide` converts lanes that are not negative.
  template <int kHalf>
  static Wide wide(V x) {
    return kHalf == 1 ? _mm256_srli_epi64(x, 32) : _mm256_blend_epi32(x, _mm256_setzero_si256(), 0xAA);
  }
  template <int kHalf>
  static Wide products(V a, V b) {
    return kHalf == 1 ? _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)) : _mm256_mul_epi32(a, b);
  }
  static Wide add_wide(Wide a, Wide b) { return _mm256_add_epi64(a, b); }
  static Wide wide_power_of_two(Wide bits) { return _mm256_sllv_epi64(_mm256_set1_epi64x(1), bits); }
  // Prepares the operand of shift_wide, which shifts to the right and leaves the upper 32 bits of a result undefined.
  static V wide_shift(V bits) { return bits; }
  static Wide shift_wide(Wide x, Wide bits) { return _mm256_srlv_epi64(x, bits); }
  // The low 32 bits of the halves.
  static V join(Wide even, Wide odd) { return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA); }
  // The product divided by 2^31, rounded down or half up. a and b are not both -2^31.
  static V multiply_high_down(V a, V b) { return join_high(products<0>(a, b), products<1>(a, b)); }
  static V multiply_high(V a, V b) {
    const Wide half = _mm256_set1_epi64x(std::int64_t{1} << 30);
    return join_high(add_wide(products<0>(a, b), half), add_wide(products<1>(a, b), half));
  }

  // Pairs of an element and 0, in order.
  static Pairs load_elements(const std::uint8_t* from) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  }
  // Loads the first n elements; the others are 0.
  static Pairs load_elements(const std::uint8_t* from, int n) {
    std::uint64_t few = 0;
    for (int i = n; i-- > 0;) few = few << 8 | from[i];
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<long long>(few)));
  }
  // Pairs of an element of a and an element of b, in order.
  template <typename... N>
  static Pairs load_pairs(const std::uint8_t* a, const std::uint8_t* b, N... n) {
    return _mm256_or_si256(load_elements(a, n...), _mm256_slli_epi32(load_elements(b, n...), 16));
  }
  static Pairs load_factors(const std::int32_t* from) { return load(from); }
  static Pairs broadcast_factors(std::int32_t pair) { return broadcast(pair); }
  // Adds the sums of products of each pair. With elements instead of pairs, kIsPair is false.
  template <bool kIsPair>
  static void add_products(V (&sums)[kVectors], Pairs x, Pairs factors) {
    sums[0] = add(sums[0], _mm256_madd_epi16(x, factors));
  }

  static Bytes broadcast_byte(int x) { return _mm256_set1_epi8(static_cast<char>(x)); }
  static Bytes load_register(const std::uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  // Loads and stores the first n elements; the others are 0.
  static Bytes load_register(const std::uint8_t* from, int n) {
    const V place = broadcast(n / 4), index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const V words = _mm256_maskload_epi32(reinterpret_cast<const int*>(from), _mm256_cmpgt_epi32(place, index));
    std::int32_t rest = 0;
    for (int i = n; i > n / 4 * 4; --i) rest = rest << 8 | from[i - 1];
    return _mm256_or_si256(words, _mm256_and_si256(broadcast(rest), _mm256_cmpeq_epi32(place, index)));
  }
  static void store_register(std::uint8_t* to, Bytes x) { store(to, x); }
  static void store_register(std::uint8_t* to, Bytes x, int n) {
    std::uint8_t few[kBytes];
    store(few, x);
    __builtin_memcpy(to, few, static_cast<std::size_t>(n));
  }
  static Bytes clamp_bytes(Bytes x, Bytes low, Bytes high) { return _mm256_min_epu8(_mm256_max_epu8(x, low), high); }
  // Pairs of the elements of two registers, within each 128-bit half of the registers. `pack` restores the order.
  static void pair(Bytes a, Bytes b, Pairs (&pairs)[kGroups]) {
    const Bytes zero = _mm256_setzero_si256();
    const Bytes a0 = _mm256_unpacklo_epi8(a, zero), a1 = _mm256_unpackhi_epi8(a, zero);
    const Bytes b0 = _mm256_unpacklo_epi8(b, zero), b1 = _mm256_unpackhi_epi8(b, zero);
    pairs[0] = _mm256_unpacklo_epi16(a0, b0);
    pairs[1] = _mm256_unpackhi_epi16(a0, b0);
    pairs[2] = _mm256_unpacklo_epi16(a1, b1);
    pairs[3] = _mm256_unpackhi_epi16(a1, b1);
  }
  // Saturates lanes to 0..255. Saturation is monotone, so that bytes can be clamped after it.
  static Bytes pack(const V (&x)[kGroups][kVectors]) {
    return _mm256_packus_epi16(_mm256_packs_epi32(x[0][0], x[1][0]), _mm256_packs_epi32(x[2][0], x[3][0]));
  }

 private:
  static __m128i words(V x) { return _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)); }
  static __m128i bytes(V x) { return _mm_packus_epi16(words(x), _mm_setzero_si128()); }
  // Bits 31..62 of the halves.
  static V join_high(Wide even, Wide odd) {
    return _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
  }
};

}  // namespace
}  // namespace tpuconvert
