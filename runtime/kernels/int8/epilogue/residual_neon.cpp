// Residual add for AArch64.
#if defined(__aarch64__)

#include <arm_neon.h>

#include "int8/epilogue/residual_rows.h"

namespace tpuconvert {

namespace {

// (factor * x + other factor * y + offset) >> shift for eight elements, saturated to 16 bits.
inline __attribute__((always_inline)) int16x8_t add_eight(uint8x8_t bytes, uint8x8_t others, const std::int32_t* factors,
                                                          const std::int32_t* offsets, int32x4_t shift) {
  const int16x8_t x = vreinterpretq_s16_u16(vmovl_u8(bytes)), y = vreinterpretq_s16_u16(vmovl_u8(others));
  const int16x8_t first = vreinterpretq_s16_s32(vld1q_s32(factors)), second = vreinterpretq_s16_s32(vld1q_s32(factors + 4));
  const int16x8_t factor = vuzp1q_s16(first, second), other = vuzp2q_s16(first, second);
  int32x4_t low = vmlal_s16(vld1q_s32(offsets), vget_low_s16(x), vget_low_s16(factor));
  int32x4_t high = vmlal_high_s16(vld1q_s32(offsets + 4), x, factor);
  low = vshlq_s32(vmlal_s16(low, vget_low_s16(y), vget_low_s16(other)), shift);
  high = vshlq_s32(vmlal_high_s16(high, y, other), shift);
  return vqmovn_high_s32(vqmovn_s32(low), high);
}

inline __attribute__((always_inline)) void add_sixteen(std::uint8_t* bytes, const std::uint8_t* others,
                                                       const std::int32_t* factors, const std::int32_t* offsets,
                                                       const ResidualRows& work) {
  const uint8x16_t x = vld1q_u8(bytes), y = vld1q_u8(others);
  const int32x4_t shift = vdupq_n_s32(-work.shift);
  const uint8x8_t low = vqmovun_s16(add_eight(vget_low_u8(x), vget_low_u8(y), factors, offsets, shift));
  const int16x8_t high = add_eight(vget_high_u8(x), vget_high_u8(y), factors + 8, offsets + 8, shift);
  const uint8x16_t result = vqmovun_high_s16(low, high);
  vst1q_u8(bytes, vminq_u8(vmaxq_u8(result, vdupq_n_u8(work.low)), vdupq_n_u8(work.high)));
}

inline void copy(const std::uint8_t* from, std::uint8_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace

void residual_neon(const ResidualRows& work) {
  const std::size_t period = static_cast<std::size_t>(work.blocks) * kResidualBlock;
  for (int row = 0; row < work.rows; ++row) {
    std::uint8_t* bytes = work.bytes[row] + work.offset;
    const std::uint8_t* others = work.others[row] + work.offset;
    std::size_t place = 0;
    for (std::size_t at = 0; at < work.count; at += 16) {
      const std::int32_t *factors = work.factors + place, *offsets = work.offsets + place;
      const std::size_t rest = work.count - at;
      if (rest >= 16) {
        add_sixteen(bytes + at, others + at, factors, offsets, work);
      } else {  // copied, so that nothing is written after the row
        std::uint8_t last[16] = {}, other[16] = {};
        copy(bytes + at, last, rest);
        copy(others + at, other, rest);
        add_sixteen(last, other, factors, offsets, work);
        copy(last, bytes + at, rest);
      }
      place = place + 16 == period ? 0 : place + 16;
    }
  }
}

}  // namespace tpuconvert

#endif
