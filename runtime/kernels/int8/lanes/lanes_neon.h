// Vectors of 4 lanes for integer kernels; see lanes_256.h. Include only in files that are compiled for AArch64.
#pragma once

#include <arm_neon.h>

#include <cstdint>

namespace tpuconvert {
namespace {

struct LanesNeon {
  using V = int32x4_t;
  using Wide = int64x2_t;  // 64-bit products of half of the lanes
  struct Pairs {           // kVectors * kLanes pairs of 16-bit values
    int16x8_t a, b;
  };
  using Bytes = uint8x16_t;  // kBytes elements
  static constexpr int kLanes = 4, kVectors = 2, kBytes = 16, kGroups = kBytes / (kVectors * kLanes);

  static V broadcast(std::int32_t x) { return vdupq_n_s32(x); }
  static V load(const std::int32_t* from) { return vld1q_s32(from); }
  // Loads the first n lanes; the others are 0.
  static V load_first(const std::int32_t* from, int n) {
    std::int32_t few[kLanes] = {};
    for (int i = 0; i < n; ++i) few[i] = from[i];
    return load(few);
  }
  static void store(void* to, V x) { vst1q_s32(static_cast<std::int32_t*>(to), x); }
  static V load_words(const std::int16_t* from) { return vmovl_s16(vld1_s16(from)); }
  // Lanes are in the range of unsigned 16-bit integers.
  static void store_words(void* to, V x) { store_low_words(to, x); }
  // Stores the low 16 bits of lanes: of all, and of the first n.
  static void store_low_words(void* to, V x) { vst1_s16(static_cast<std::int16_t*>(to), vmovn_s32(x)); }
  static void store_low_words(void* to, V x, int n) {
    std::int16_t results[kLanes];
    store_low_words(results, x);
    copy(to, results, 2 * n);
  }
  // Lanes are in 0..255.
  static void store_bytes(void* to, V x) {
    const std::uint32_t four = bytes(x);
    __builtin_memcpy(to, &four, sizeof four);
  }
  // Stores the first n lanes: all if n is larger than kLanes, none if it is negative.
  static void store_bytes(std::uint8_t* to, V x, int n) {
    std::uint32_t few = bytes(x);
    for (int i = 0; i < kLanes && i < n; ++i, few >>= 8) to[i] = static_cast<std::uint8_t>(few);
  }
  // Rounds to float32, and multiplies.
  static void store_product(void* to, V x, float scale) {
    vst1q_f32(static_cast<float*>(to), vmulq_f32(vcvtq_f32_s32(x), vdupq_n_f32(scale)));
  }
  // Copies at most 4 * kLanes bytes.
  static void copy(void* to, const void* from, int bytes) {
    for (int i = 0; i < bytes; ++i) static_cast<std::uint8_t*>(to)[i] = static_cast<const std::uint8_t*>(from)[i];
  }

  static V add(V a, V b) { return vaddq_s32(a, b); }
  static V subtract(V a, V b) { return vsubq_s32(a, b); }
  static V multiply(V a, V b) { return vmulq_s32(a, b); }
  static V smaller(V a, V b) { return vminq_s32(a, b); }
  static V larger(V a, V b) { return vmaxq_s32(a, b); }
  static V bit_and(V a, V b) { return vandq_s32(a, b); }
  static V sign(V x) { return vshrq_n_s32(x, 31); }
  static V negative_if_positive(V x) { return vreinterpretq_s32_u32(vcgtzq_s32(x)); }
  // sign < 0 ? a : b
  static V where_negative(V sign, V a, V b) { return vbslq_s32(vcltzq_s32(sign), a, b); }
  static V shift_right(V x, int bits) { return vshlq_s32(x, vdupq_n_s32(-bits)); }
  static V shift_right_by(V x, V bits) { return vshlq_s32(x, vnegq_s32(bits)); }
  static V shift_left_by(V x, V bits) { return vshlq_s32(x, bits); }
  // (x + 1) >> 1
  static V half_up(V x) { return vrshrq_n_s32(x, 1); }
  static V gather(const std::int16_t* table, V index) {
    const std::int32_t entries[kLanes] = {table[vgetq_lane_s32(index, 0)], table[vgetq_lane_s32(index, 1)],
                                          table[vgetq_lane_s32(index, 2)], table[vgetq_lane_s32(index, 3)]};
    return load(entries);
  }

  // Half 0 has the lower lanes, half 1 the upper ones.
  template <int kHalf>
  static Wide wide(V x) {
    return kHalf == 1 ? vmovl_high_s32(x) : vmovl_s32(vget_low_s32(x));
  }
  template <int kHalf>
  static Wide products(V a, V b) {
    return kHalf == 1 ? vmull_high_s32(a, b) : vmull_s32(vget_low_s32(a), vget_low_s32(b));
  }
  static Wide add_wide(Wide a, Wide b) { return vaddq_s64(a, b); }
  static Wide wide_power_of_two(Wide bits) { return vshlq_s64(vdupq_n_s64(1), bits); }
  // Prepares the operand of shift_wide: shifts to the right are negative.
  static V wide_shift(V bits) { return vnegq_s32(bits); }
  static Wide shift_wide(Wide x, Wide bits) { return vshlq_s64(x, bits); }
  // The low 32 bits of the halves.
  static V join(Wide lower, Wide upper) { return vcombine_s32(vmovn_s64(lower), vmovn_s64(upper)); }
  // The product divided by 2^31, rounded down or half up. a and b are not both -2^31, for which both saturate.
  static V multiply_high_down(V a, V b) { return vqdmulhq_s32(a, b); }
  static V multiply_high(V a, V b) { return vqrdmulhq_s32(a, b); }

  // Elements without a second one, in order.
  static Pairs load_elements(const std::uint8_t* from) {
    const int16x8_t x = widen(vld1_u8(from));
    return {x, x};
  }
  // Loads the first n elements; the others are 0.
  static Pairs load_elements(const std::uint8_t* from, int n) {
    std::uint64_t few = 0;
    for (int i = n; i-- > 0;) few = few << 8 | from[i];
    const int16x8_t x = widen(vcreate_u8(few));
    return {x, x};
  }
  // Pairs of an element of a and an element of b, in order.
  template <typename... N>
  static Pairs load_pairs(const std::uint8_t* a, const std::uint8_t* b, N... n) {
    return {load_elements(a, n...).a, load_elements(b, n...).a};
  }
  static Pairs load_factors(const std::int32_t* from) {
    const int16x8_t low = vreinterpretq_s16_s32(load(from)), high = vreinterpretq_s16_s32(load(from + kLanes));
    return {vuzp1q_s16(low, high), vuzp2q_s16(low, high)};
  }
  static Pairs broadcast_factors(std::int32_t pair) {
    return {vdupq_n_s16(static_cast<std::int16_t>(pair)), vdupq_n_s16(static_cast<std::int16_t>(pair >> 16))};
  }
  // Adds the sums of products of each pair. With elements instead of pairs, kIsPair is false.
  template <bool kIsPair>
  static void add_products(V (&sums)[kVectors], Pairs x, Pairs factors) {
    sums[0] = vmlal_s16(sums[0], vget_low_s16(x.a), vget_low_s16(factors.a));
    sums[1] = vmlal_high_s16(sums[1], x.a, factors.a);
    if (!kIsPair) return;
    sums[0] = vmlal_s16(sums[0], vget_low_s16(x.b), vget_low_s16(factors.b));
    sums[1] = vmlal_high_s16(sums[1], x.b, factors.b);
  }

  static Bytes broadcast_byte(int x) { return vdupq_n_u8(static_cast<std::uint8_t>(x)); }
  static Bytes load_register(const std::uint8_t* from) { return vld1q_u8(from); }
  // Loads and stores the first n elements; the others are 0.
  static Bytes load_register(const std::uint8_t* from, int n) {
    std::uint8_t few[kBytes] = {};
    copy(few, from, n);
    return load_register(few);
  }
  static void store_register(std::uint8_t* to, Bytes x) { vst1q_u8(to, x); }
  static void store_register(std::uint8_t* to, Bytes x, int n) {
    std::uint8_t few[kBytes];
    vst1q_u8(few, x);
    copy(to, few, n);
  }
  static Bytes clamp_bytes(Bytes x, Bytes low, Bytes high) { return vminq_u8(vmaxq_u8(x, low), high); }
  // Pairs of the elements of two registers, in order.
  static void pair(Bytes a, Bytes b, Pairs (&pairs)[kGroups]) {
    pairs[0] = {widen(vget_low_u8(a)), widen(vget_low_u8(b))};
    pairs[1] = {vreinterpretq_s16_u16(vmovl_high_u8(a)), vreinterpretq_s16_u16(vmovl_high_u8(b))};
  }
  // Saturates lanes to 0..255. Saturation is monotone, so that bytes can be clamped after it.
  static Bytes pack(const V (&x)[kGroups][kVectors]) {
    const auto words = [&](int group) { return vqmovn_high_s32(vqmovn_s32(x[group][0]), x[group][1]); };
    return vqmovun_high_s16(vqmovun_s16(words(0)), words(1));
  }

 private:
  static std::uint32_t bytes(V x) {
    const int16x4_t words = vmovn_s32(x);
    return vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
  }
  static int16x8_t widen(uint8x8_t bytes) { return vreinterpretq_s16_u16(vmovl_u8(bytes)); }
};

}  // namespace
}  // namespace tpuconvert
