// Requantization of rows of sums with vectors of 4 lanes.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstddef>

#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Integer = int32x4_t;
  static constexpr int kCount = 4;

  static Integer load(const std::int32_t* from) { return vld1q_s32(from); }
  // Loads the first n lanes; the others are 0.
  static Integer load_first(const std::int32_t* from, int n) {
    std::int32_t few[kCount] = {};
    for (int i = 0; i < n; ++i) few[i] = from[i];
    return load(few);
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, int bytes) {
    for (int i = 0; i < bytes; ++i) to[i] = from[i];
  }
  static Integer all(std::int32_t value) { return vdupq_n_s32(value); }
  // The even lanes of epilogue_rows.inl are the lower half of a register here, the odd ones the upper half: the products
  // of a half are adjacent.
  static Integer multiply(Integer a, Integer b) {
    return vreinterpretq_s32_s64(vmull_s32(vget_low_s32(a), vget_low_s32(b)));
  }
  static Integer upper(Integer x) { return vextq_s32(x, x, 2); }
  static Integer add_wide(Integer x, std::int64_t value) {
    return vreinterpretq_s32_s64(vaddq_s64(vreinterpretq_s64_s32(x), vdupq_n_s64(value)));
  }
  static Integer joined(Integer lower, Integer upper) {
    return vshrn_high_n_s64(vshrn_n_s64(vreinterpretq_s64_s32(lower), 31), vreinterpretq_s64_s32(upper), 31);
  }
  static Integer add(Integer a, Integer b) { return vaddq_s32(a, b); }
  static Integer subtract(Integer a, Integer b) { return vsubq_s32(a, b); }
  template <int Bits>
  static Integer shifted_right(Integer x) { return vshrq_n_s32(x, Bits); }
  static Integer shifted_right(Integer x, Integer bits) { return vshlq_s32(x, vnegq_s32(bits)); }
  static Integer shifted_left(Integer x, Integer bits) { return vshlq_s32(x, bits); }
  static Integer where_negative(Integer sign, Integer a, Integer b) { return vbslq_s32(vcltzq_s32(sign), a, b); }
  static Integer limited(Integer x, Integer low, Integer high) { return vminq_s32(vmaxq_s32(x, low), high); }
  static void store_bytes(std::uint8_t* out, Integer x) {
    const int16x4_t words = vmovn_s32(x);
    const std::uint32_t bytes = vget_lane_u32(vreinterpret_u32_s8(vmovn_s16(vcombine_s16(words, words))), 0);
    __builtin_memcpy(out, &bytes, sizeof bytes);
  }
  static void store_words(std::uint8_t* out, Integer x) { vst1_u8(out, vreinterpret_u8_s16(vmovn_s32(x))); }
  static void store_first_words(std::uint8_t* out, Integer x, int n) {
    std::uint8_t results[2 * kCount];
    store_words(results, x);
    copy(out, results, 2 * n);
  }
  static void store(std::uint8_t* out, Integer x) { vst1q_u8(out, vreinterpretq_u8_s32(x)); }
  static void store_product(std::uint8_t* out, Integer x, float scale) {
    vst1q_u8(out, vreinterpretq_u8_f32(vmulq_f32(vcvtq_f32_s32(x), vdupq_n_f32(scale))));
  }
};

#include "int8/epilogue/epilogue_rows.inl"

}  // namespace

RowFunction row_function_neon(const RowVariant& variant) {
  return variant.rounds_twice ? function_for<true>(variant) : function_for<false>(variant);
}

BlockFunction block_of_rows_neon(const RowVariant& variant) { return block_for(variant); }

}  // namespace tpuconvert

#endif
