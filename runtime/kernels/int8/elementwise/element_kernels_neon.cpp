// Element-wise kernels for AArch64. The loops of element_loops.h are vectorized by the compiler.
#include "int8/elementwise/element_kernels.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include <cstddef>

namespace tpuconvert {
namespace {

struct Rescaling {
  int32x4_t multiplier, second, again, offset;
  int64x2_t first[2], half[2];  // lanes 0 and 1, lanes 2 and 3; shifts are negative, which shifts right

  static Rescaling of(int32x4_t multiplier, int32x4_t first, int32x4_t second, int32x4_t again, int32x4_t offset) {
    Rescaling p{multiplier, vnegq_s32(second), again, offset, {}, {}};
    const int32x4_t bit = vsubq_s32(vaddq_s32(first, second), vdupq_n_s32(1)), right = vnegq_s32(first);
    p.first[0] = vmovl_s32(vget_low_s32(right));
    p.first[1] = vmovl_high_s32(right);
    p.half[0] = vshlq_s64(vdupq_n_s64(1), vmovl_s32(vget_low_s32(bit)));
    p.half[1] = vshlq_s64(vdupq_n_s64(1), vmovl_high_s32(bit));
    return p;
  }
  static Rescaling at(const Lanes& lanes, int i) {
    const auto load = [&](RescaleParameter name) { return vld1q_s32(lanes.parameters[name] + i); };
    return of(load(kMultiplier), load(kFirst), load(kSecond), load(kAgain), load(kOffset));
  }
  static Rescaling of_all(const Lanes& lanes) {
    const auto load = [&](RescaleParameter name) { return vdupq_n_s32(lanes.parameters[name][0]); };
    return of(load(kMultiplier), load(kFirst), load(kSecond), load(kAgain), load(kOffset));
  }
};

template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
inline __attribute__((always_inline)) int32x4_t rescaled(int32x4_t x, const Rescaling& p) {
  int64x2_t low = vmull_s32(vget_low_s32(x), vget_low_s32(p.multiplier)), high = vmull_high_s32(x, p.multiplier);
  if (kIsWide) {
    low = vaddq_s64(low, p.half[0]);
    high = vaddq_s64(high, p.half[1]);
  }
  int32x4_t h = vcombine_s32(vmovn_s64(vshlq_s64(low, p.first[0])), vmovn_s64(vshlq_s64(high, p.first[1])));
  if (kHasSecond) h = vshlq_s32(h, p.second);
  if (!kIsWide) h = vrshrq_n_s32(h, 1);
  if (kHasAgain) {
    const int32x4_t twice = vshlq_s32(vaddq_s32(h, vshrq_n_s32(h, 31)), vnegq_s32(p.again));
    h = vbslq_s32(vcltzq_s32(p.again), h, vrshrq_n_s32(twice, 1));
  }
  return vaddq_s32(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
void rescale_all(const Lanes& lanes) {
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += 4)
      vst1q_s32(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(vld1q_s32(lanes.a + i), Rescaling::at(lanes, i)));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += 4)
      vst1q_s32(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(vld1q_s32(lanes.a + i), p));
  }
}

void rescale(const Lanes& lanes) {
  if (lanes.is_wide)
    return lanes.has_again ? rescale_all<true, true, true>(lanes) : rescale_all<true, false, true>(lanes);
  if (lanes.has_again)
    lanes.has_second ? rescale_all<true, true>(lanes) : rescale_all<false, true>(lanes);
  else
    lanes.has_second ? rescale_all<true, false>(lanes) : rescale_all<false, false>(lanes);
}

// Scales of eight lanes for both operands, and the addend.
struct Factors {
  int16x8_t a, b;
  int32x4_t offset[2];

  static Factors of_all(const Lanes& lanes) {
    const std::int32_t pair = lanes.parameters[0][0];
    const int32x4_t offset = vdupq_n_s32(lanes.parameters[1][0]);
    return {vdupq_n_s16(static_cast<std::int16_t>(pair)), vdupq_n_s16(static_cast<std::int16_t>(pair >> 16)),
            {offset, offset}};
  }
  static Factors at(const Lanes& lanes, int i) {
    const int16x8_t low = vreinterpretq_s16_s32(vld1q_s32(lanes.parameters[0] + i));
    const int16x8_t high = vreinterpretq_s16_s32(vld1q_s32(lanes.parameters[0] + i + 4));
    return {vuzp1q_s16(low, high), vuzp2q_s16(low, high),
            {vld1q_s32(lanes.parameters[1] + i), vld1q_s32(lanes.parameters[1] + i + 4)}};
  }
};

inline int16x8_t words_of(uint8x8_t bytes) { return vreinterpretq_s16_u16(vmovl_u8(bytes)); }

template <bool kHasB>
inline __attribute__((always_inline)) int32x4x2_t summed(int16x8_t x, int16x8_t y, const Factors& f) {
  int32x4x2_t sum;
  sum.val[0] = vmlal_s16(f.offset[0], vget_low_s16(x), vget_low_s16(f.a));
  sum.val[1] = vmlal_high_s16(f.offset[1], x, f.a);
  if (kHasB) {
    sum.val[0] = vmlal_s16(sum.val[0], vget_low_s16(y), vget_low_s16(f.b));
    sum.val[1] = vmlal_high_s16(sum.val[1], y, f.b);
  }
  return sum;
}

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  Factors f = Factors::of_all(lanes);
  int i = 0;
  for (; i + 8 <= lanes.count; i += 8) {
    if (lanes.is_per_lane) f = Factors::at(lanes, i);
    const int16x8_t x = words_of(vld1_u8(a + i)), y = kHasB ? words_of(vld1_u8(b + i)) : x;
    const int32x4x2_t sum = summed<kHasB>(x, y, f);
    vst1q_s32(lanes.out + i, sum.val[0]);
    vst1q_s32(lanes.out + i + 4, sum.val[1]);
  }
  for (; i < lanes.count; ++i) {
    const std::int32_t pair = lanes.parameters[0][lanes.is_per_lane ? i : 0];
    const std::int32_t from_b = kHasB ? b[i] * (pair >> 16) : 0;
    lanes.out[i] = wrapping_sum(a[i] * static_cast<std::int16_t>(pair) + from_b, lanes.parameters[1][lanes.is_per_lane ? i : 0]);
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, nullptr, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

template <bool kHasSecond, bool kHasAgain>
int residual_of_tensors(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                        const StoreLimits& limits, std::uint8_t* to, int count) {
  const Factors f = Factors::of_all(sum);
  Rescaling p = Rescaling::of_all(rescaling);
  p.offset = vaddq_s32(p.offset, vdupq_n_s32(limits.bias));
  const uint8x16_t low = vdupq_n_u8(static_cast<std::uint8_t>(limits.low + limits.bias));
  const uint8x16_t high = vdupq_n_u8(static_cast<std::uint8_t>(limits.high + limits.bias));
  // The narrowing conversions saturate, which does not change a value that is limited to bytes afterwards.
  const auto result = [&](int16x8_t x, int16x8_t y) {
    const int32x4x2_t s = summed<true>(x, y, f);
    const int16x4_t first = vqmovn_s32(rescaled<kHasSecond, kHasAgain>(s.val[0], p));
    return vqmovun_s16(vqmovn_high_s32(first, rescaled<kHasSecond, kHasAgain>(s.val[1], p)));
  };
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const uint8x16_t x = vld1q_u8(a + i), y = vld1q_u8(b + i);
    const uint8x8_t first = result(words_of(vget_low_u8(x)), words_of(vget_low_u8(y)));
    const uint8x8_t second = result(words_of(vget_high_u8(x)), words_of(vget_high_u8(y)));
    vst1q_u8(to + i, vminq_u8(vmaxq_u8(vcombine_u8(first, second), low), high));
  }
  return i;
}

#include "int8/elementwise/residual_by_block.h"

void residual(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
              const StoreLimits& limits, std::uint8_t* to, int count) {
  int done = 0;
  if (!sum.is_per_lane && !rescaling.is_per_lane) {
    if (rescaling.has_again)
      done = rescaling.has_second ? residual_of_tensors<true, true>(a, b, sum, rescaling, limits, to, count)
                                  : residual_of_tensors<false, true>(a, b, sum, rescaling, limits, to, count);
    else
      done = rescaling.has_second ? residual_of_tensors<true, false>(a, b, sum, rescaling, limits, to, count)
                                  : residual_of_tensors<false, false>(a, b, sum, rescaling, limits, to, count);
  }
  residual_by_blocks(a, b, sum, rescaling, limits, to, done, count);
}

// Four multiply-shift instructions rescale four lanes exactly; a float form would need as many.
constexpr decltype(ElementKernels::residual_float) kResidualFloat = nullptr;

void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = table.entries[from[i]];
}

// A lookup gives 0 for an index out of range, an extending lookup keeps the byte. The index is moved by 64 for each
// quarter of the table.
void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  const uint8x16x4_t t0 = vld1q_u8_x4(table), t1 = vld1q_u8_x4(table + 64), t2 = vld1q_u8_x4(table + 128),
                     t3 = vld1q_u8_x4(table + 192);
  const uint8x16_t quarter = vdupq_n_u8(64);
  std::int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    uint8x16_t x = vld1q_u8(from + i);
    uint8x16_t result = vqtbl4q_u8(t0, x);
    x = vsubq_u8(x, quarter);
    result = vqtbx4q_u8(result, t1, x);
    x = vsubq_u8(x, quarter);
    result = vqtbx4q_u8(result, t2, x);
    result = vqtbx4q_u8(result, t3, vsubq_u8(x, quarter));
    vst1q_u8(to + i, result);
  }
  for (; i < count; ++i) to[i] = table[from[i]];
}

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  int i = 0;
  for (; i + 16 <= count; i += 16)
    vst3q_u8(to + 3 * i, {{vld1q_u8(planes[0] + i), vld1q_u8(planes[1] + i), vld1q_u8(planes[2] + i)}});
  for (; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_neon() { return kKernels; }

}  // namespace tpuconvert

#endif
