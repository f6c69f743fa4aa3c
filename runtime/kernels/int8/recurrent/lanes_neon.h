// Vectors of 4 lanes for integer recurrent layers, without the dot product. Include after <arm_neon.h>.
#pragma once

#include <cstdint>
#include <cstring>

namespace tpuconvert {
namespace {

struct LanesNeon {
  using V = int32x4_t;
  static constexpr int kLanes = 4;

  static V broadcast(std::int32_t x) { return vdupq_n_s32(x); }
  static V load(const std::int32_t* from) { return vld1q_s32(from); }
  static void store(std::int32_t* to, V x) { vst1q_s32(to, x); }
  static V load_words(const std::int16_t* from) { return vmovl_s16(vld1_s16(from)); }
  // Lanes are in the range of unsigned 16-bit integers.
  static void store_words(std::int16_t* to, V x) { vst1_s16(to, vmovn_s32(x)); }
  static void store_bytes(std::uint8_t* to, V x) {
    const uint16x4_t words = vqmovun_s32(x);
    const std::uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(vqmovn_u16(vcombine_u16(words, words))), 0);
    std::memcpy(to, &bytes, sizeof bytes);
  }
  static V add(V a, V b) { return vaddq_s32(a, b); }
  static V subtract(V a, V b) { return vsubq_s32(a, b); }
  static V multiply(V a, V b) { return vmulq_s32(a, b); }
  static V smaller(V a, V b) { return vminq_s32(a, b); }
  static V larger(V a, V b) { return vmaxq_s32(a, b); }
  static V bit_and(V a, V b) { return vandq_s32(a, b); }
  static V sign(V x) { return vshrq_n_s32(x, 31); }
  static V negative_if_positive(V x) { return vreinterpretq_s32_u32(vcgtzq_s32(x)); }
  static V shift_right(V x, int bits) { return vshlq_s32(x, vdupq_n_s32(-bits)); }
  static V shift_right_by(V x, V bits) { return vshlq_s32(x, vnegq_s32(bits)); }
  static V shift_left_by(V x, V bits) { return vshlq_s32(x, bits); }
  // (a * b + 2^30) >> 31; a and b are not both -2^31, for which the instruction saturates.
  static V multiply_high(V a, V b) { return vqrdmulhq_s32(a, b); }
  static V gather(const std::int16_t* table, V index) {
    const std::int32_t found[kLanes] = {table[vgetq_lane_s32(index, 0)], table[vgetq_lane_s32(index, 1)],
                                        table[vgetq_lane_s32(index, 2)], table[vgetq_lane_s32(index, 3)]};
    return load(found);
  }
};

}  // namespace
}  // namespace tpuconvert
