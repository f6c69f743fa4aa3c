// The 16-bit convolution with vectors of 4 lanes, for AArch64.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstring>

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

struct Lanes {
  using Integer = int32x4_t;
  static constexpr int kCount = 4;
  static constexpr int kRows = 5;  // 20 accumulators, and the weights and an operand as two vectors of words each
  static constexpr bool kHasFactors = false;

  static Integer load(const std::int32_t* from) { return vld1q_s32(from); }
  static Integer all(std::int32_t value) { return vdupq_n_s32(value); }
  // Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
  // when the step is made.
  static Integer add_products(Integer sum, Integer x, Integer w) {
    const Integer first = vmlal_s16(sum, vmovn_s32(x), vmovn_s32(w));
    return vmlal_s16(first, vshrn_n_s32(x, 16), vshrn_n_s32(w, 16));
  }
  static Integer requantized(Integer x, const Requantization& r, int part) {
    const Integer multiplier = load(r.multiplier + part * kCount);
    const auto shifted = [&](int32x2_t value, int32x2_t factor, int odd) {
      const int at = part * kCount / 2;
      const int64x2_t sum = vmlal_s32(vld1q_s64(r.half[odd] + at), value, factor);
      return vreinterpretq_s32_u64(vshlq_u64(vreinterpretq_u64_s64(sum), vnegq_s64(vld1q_s64(r.shift[odd] + at))));
    };
    const Integer even = shifted(vget_low_s32(vuzp1q_s32(x, x)), vget_low_s32(vuzp1q_s32(multiplier, multiplier)), 0);
    const Integer odd = shifted(vget_low_s32(vuzp2q_s32(x, x)), vget_low_s32(vuzp2q_s32(multiplier, multiplier)), 1);
    return vaddq_s32(vtrn1q_s32(even, odd), load(r.addend + part * kCount));
  }
  static Integer limited(Integer x, std::int32_t low, std::int32_t high) {
    return vminq_s32(vmaxq_s32(x, all(low)), all(high));
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    const int16x4_t words = vmovn_s32(x);
    const std::uint32_t bytes = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
    std::memcpy(out, &bytes, sizeof bytes);
  }
  static void store_words(std::uint8_t* out, Integer x) { vst1_u8(out, vreinterpret_u8_s16(vmovn_s32(x))); }
  static void store_reals(std::uint8_t* out, Integer x, std::int32_t zero, float scale) {
    const float32x4_t real = vcvtq_f32_s32(vsubq_s32(x, all(zero)));
    vst1q_u8(out, vreinterpretq_u8_f32(vmulq_f32(real, vdupq_n_f32(scale))));
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void store(std::int32_t* to, Integer x) { vst1q_s32(to, x); }
  static Integer load_words(const std::int16_t* from) { return vmovl_s16(vld1_s16(from)); }
  static Integer pair_of(Integer x) {
    const Integer value = vminq_s32(x, all(32639));
    const Integer byte = vshlq_n_s32(vshrq_n_s32(vaddq_s32(value, all(128)), 8), 16);
    return vbslq_s32(vdupq_n_u32(0xFFFF), value, byte);
  }
};

#include "int16/conv_kernels.inl"

}  // namespace

const Functions& functions_neon() {
  static constexpr Functions kFunctions{Lanes::kRows, multiply, depthwise, expand_words, expand_bytes};
  return kFunctions;
}

}  // namespace tpuconvert::int16
#endif
