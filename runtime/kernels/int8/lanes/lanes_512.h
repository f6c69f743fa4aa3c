// Vectors of 16 lanes for integer kernels; see lanes_256.h. Include only in files that are compiled for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tpuconvert {
namespace {

struct Lanes512 {
  using V = __m512i;
  using Wide = __m512i;   // 64-bit products of half of the lanes
  using Pairs = __m512i;  // kVectors * kLanes pairs of 16-bit values
  using Bytes = __m512i;  // kBytes elements
  static constexpr int kLanes = 16, kVectors = 1, kBytes = 64, kGroups = kBytes / (kVectors * kLanes);

  static V broadcast(std::int32_t x) { return _mm512_set1_epi32(x); }
  static V load(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  // Loads the first n lanes; the others are 0.
  static V load_first(const std::int32_t* from, int n) { return _mm512_maskz_loadu_epi32(first_lanes(n), from); }
  static void store(void* to, V x) { _mm512_storeu_si512(to, x); }
  static V load_words(const std::int16_t* from) {
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  // Stores the low 16 bits of lanes: of all, and of the first n.
  static void store_low_words(void* to, V x) {
    _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_cvtepi32_epi16(x));
  }
  static void store_low_words(void* to, V x, int n) {
    _mm256_mask_storeu_epi16(to, first_lanes(n), _mm512_cvtepi32_epi16(x));
  }
  // Lanes are in 0..255.
  static void store_bytes(void* to, V x) { _mm_storeu_si128(static_cast<__m128i*>(to), _mm512_cvtepi32_epi8(x)); }
  // Stores the first n lanes, n < kLanes.
  static void store_bytes(std::uint8_t* to, V x, int n) {
    _mm_mask_storeu_epi8(to, first_lanes(n), _mm512_cvtepi32_epi8(x));
  }
  // Rounds to float32, and multiplies.
  static void store_product(void* to, V x, float scale) {
    _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(scale)));
  }
  // Copies less than 4 * kLanes bytes.
  static void copy(void* to, const void* from, int bytes) {
    _mm512_mask_storeu_epi8(to, first_bytes(bytes), _mm512_maskz_loadu_epi8(first_bytes(bytes), from));
  }

  static V add(V a, V b) { return _mm512_add_epi32(a, b); }
  static V subtract(V a, V b) { return _mm512_sub_epi32(a, b); }
  static V multiply(V a, V b) { return _mm512_mullo_epi32(a, b); }
  static V smaller(V a, V b) { return _mm512_min_epi32(a, b); }
  static V larger(V a, V b) { return _mm512_max_epi32(a, b); }
  static V bit_and(V a, V b) { return _mm512_and_si512(a, b); }
  static V sign(V x) { return _mm512_srai_epi32(x, 31); }
  static V negative_if_positive(V x) { return _mm512_movm_epi32(_mm512_cmpgt_epi32_mask(x, _mm512_setzero_si512())); }
  // sign < 0 ? a : b
  static V where_negative(V sign, V a, V b) { return _mm512_mask_blend_epi32(_mm512_movepi32_mask(sign), b, a); }
  static V shift_right(V x, int bits) { return _mm512_sra_epi32(x, _mm_cvtsi32_si128(bits)); }
  static V shift_right_by(V x, V bits) { return _mm512_srav_epi32(x, bits); }
  static V shift_left_by(V x, V bits) { return _mm512_sllv_epi32(x, bits); }
  // (x + 1) >> 1, for x < 2^31 - 1.
  static V half_up(V x) { return _mm512_srai_epi32(add(x, broadcast(1)), 1); }
  static V gather(const std::int16_t* table, V index) {
    const V entries = _mm512_i32gather_epi32(index, table, 2);
    return _mm512_srai_epi32(_mm512_slli_epi32(entries, 16), 16);
  }

  // Half 0 has the even lanes, half 1 the odd ones. `wide` converts lanes that are not negative.
  template <int kHalf>
  static Wide wide(V x) {
    return kHalf == 1 ? _mm512_srli_epi64(x, 32) : _mm512_maskz_mov_epi32(0x5555, x);
  }
  template <int kHalf>
  static Wide products(V a, V b) {
    return kHalf == 1 ? _mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32)) : _mm512_mul_epi32(a, b);
  }
  static Wide add_wide(Wide a, Wide b) { return _mm512_add_epi64(a, b); }
  static Wide wide_power_of_two(Wide bits) { return _mm512_sllv_epi64(_mm512_set1_epi64(1), bits); }
  // Prepares the operand of shift_wide, which shifts to the right and leaves the upper 32 bits of a result undefined.
  static V wide_shift(V bits) { return bits; }
  static Wide shift_wide(Wide x, Wide bits) { return _mm512_srlv_epi64(x, bits); }
  // The low 32 bits of the halves.
  static V join(Wide even, Wide odd) { return _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, _MM_PERM_CCAA); }
  // The product divided by 2^31, rounded down or half up. a and b are not both -2^31.
  static V multiply_high_down(V a, V b) { return join_high(products<0>(a, b), products<1>(a, b)); }
  static V multiply_high(V a, V b) {
    const Wide half = _mm512_set1_epi64(std::int64_t{1} << 30);
    return join_high(add_wide(products<0>(a, b), half), add_wide(products<1>(a, b), half));
  }

  // Pairs of an element and 0, in order.
  static Pairs load_elements(const std::uint8_t* from) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  // Loads the first n elements; the others are 0.
  static Pairs load_elements(const std::uint8_t* from, int n) {
    return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), from));
  }
  // Pairs of an element of a and an element of b, in order.
  template <typename... N>
  static Pairs load_pairs(const std::uint8_t* a, const std::uint8_t* b, N... n) {
    return _mm512_or_si512(load_elements(a, n...), _mm512_slli_epi32(load_elements(b, n...), 16));
  }
  static Pairs load_factors(const std::int32_t* from) { return load(from); }
  static Pairs broadcast_factors(std::int32_t pair) { return broadcast(pair); }
  // Adds the sums of products of each pair. With elements instead of pairs, kIsPair is false.
  template <bool kIsPair>
  static void add_products(V (&sums)[kVectors], Pairs x, Pairs factors) {
    sums[0] = add(sums[0], _mm512_madd_epi16(x, factors));
  }

  static Bytes broadcast_byte(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
  static Bytes load_register(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
  // Loads and stores the first n elements; the others are 0.
  static Bytes load_register(const std::uint8_t* from, int n) { return _mm512_maskz_loadu_epi8(first_bytes(n), from); }
  static void store_register(std::uint8_t* to, Bytes x) { store(to, x); }
  static void store_register(std::uint8_t* to, Bytes x, int n) { _mm512_mask_storeu_epi8(to, first_bytes(n), x); }
  static Bytes clamp_bytes(Bytes x, Bytes low, Bytes high) { return _mm512_min_epu8(_mm512_max_epu8(x, low), high); }
  // Pairs of the elements of two registers, within each 128-bit quarter of the registers. `pack` restores the order.
  static void pair(Bytes a, Bytes b, Pairs (&pairs)[kGroups]) {
    const Bytes zero = _mm512_setzero_si512();
    const Bytes a0 = _mm512_unpacklo_epi8(a, zero), a1 = _mm512_unpackhi_epi8(a, zero);
    const Bytes b0 = _mm512_unpacklo_epi8(b, zero), b1 = _mm512_unpackhi_epi8(b, zero);
    pairs[0] = _mm512_unpacklo_epi16(a0, b0);
    pairs[1] = _mm512_unpackhi_epi16(a0, b0);
    pairs[2] = _mm512_unpacklo_epi16(a1, b1);
    pairs[3] = _mm512_unpackhi_epi16(a1, b1);
  }
  // Saturates lanes to 0..255. Saturation is monotone, so that bytes can be clamped after it.
  static Bytes pack(const V (&x)[kGroups][kVectors]) {
    return _mm512_packus_epi16(_mm512_packs_epi32(x[0][0], x[1][0]), _mm512_packs_epi32(x[2][0], x[3][0]));
  }

 private:
  static __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }
  static __mmask64 first_bytes(int n) { return (__mmask64{1} << n) - 1; }
  // Bits 31..62 of the halves.
  static V join_high(Wide even, Wide odd) {
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
  }
};

}  // namespace
}  // namespace tpuconvert
