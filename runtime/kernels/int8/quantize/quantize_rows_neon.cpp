// Quantization of rows with pairs of vectors of 4 lanes: as many lanes as AVX2, so that the bounds of the errors of
// sums are the same.
#if defined(__aarch64__)
#include "float32/vector_neon.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

template <typename T>
struct Twice {
  static constexpr int kLanes = 2 * T::kLanes;
  T a, b;

  template <typename Number>
  FLOAT_INLINE static Twice broadcast(Number x) {
    return {T::broadcast(x), T::broadcast(x)};
  }
  template <typename Number>
  FLOAT_INLINE static Twice load(const Number* from) {
    return {T::load(from), T::load(from + T::kLanes)};
  }
  template <typename Number>
  FLOAT_INLINE void store(Number* to) const {
    a.store(to);
    b.store(to + T::kLanes);
  }

  FLOAT_INLINE friend Twice operator+(Twice x, Twice y) { return {x.a + y.a, x.b + y.b}; }
  FLOAT_INLINE friend Twice operator-(Twice x, Twice y) { return {x.a - y.a, x.b - y.b}; }
  FLOAT_INLINE friend Twice operator*(Twice x, Twice y) { return {x.a * y.a, x.b * y.b}; }
  FLOAT_INLINE friend Twice fused(Twice x, Twice y, Twice z) { return {fused(x.a, y.a, z.a), fused(x.b, y.b, z.b)}; }
  FLOAT_INLINE friend Twice larger(Twice x, Twice y) { return {larger(x.a, y.a), larger(x.b, y.b)}; }
  FLOAT_INLINE friend Twice smaller(Twice x, Twice y) { return {smaller(x.a, y.a), smaller(x.b, y.b)}; }
  FLOAT_INLINE friend Twice round_down(Twice x) { return {round_down(x.a), round_down(x.b)}; }
  FLOAT_INLINE friend Twice magnitude(Twice x) { return {magnitude(x.a), magnitude(x.b)}; }
};

using Real = Twice<Float>;
using Wide = Twice<Double>;
struct Mask {
  uint32x4_t a, b;
};

FLOAT_INLINE Mask operator<(Real x, Real y) { return {(x.a < y.a).m, (x.b < y.b).m}; }
FLOAT_INLINE Mask all_lanes() { return {vdupq_n_u32(~0u), vdupq_n_u32(~0u)}; }
FLOAT_INLINE Mask both(Mask x, Mask y) { return {vandq_u32(x.a, y.a), vandq_u32(x.b, y.b)}; }
FLOAT_INLINE bool all(Mask m) { return all(FloatMask{vandq_u32(m.a, m.b)}); }
FLOAT_INLINE void widen(Real x, Wide (&halves)[2]) {
  Double low[2], high[2];
  widen(x.a, low);
  widen(x.b, high);
  halves[0] = {low[0], low[1]};
  halves[1] = {high[0], high[1]};
}
FLOAT_INLINE Real narrow(const Wide (&halves)[2]) {
  const Double low[2] = {halves[0].a, halves[0].b}, high[2] = {halves[1].a, halves[1].b};
  return {narrow(low), narrow(high)};
}
FLOAT_INLINE Wide times_power_of_two(Wide x, Wide shifted) {
  return {times_power_of_two(x.a, shifted.a), times_power_of_two(x.b, shifted.b)};
}

// Loads the first n lanes; the others are those of `rest`.
FLOAT_INLINE Real load_first(const float* from, std::int64_t n, Real rest) {
  float few[Real::kLanes];
  rest.store(few);
  for (int i = 0; i < n; ++i) few[i] = from[i];
  return Real::load(few);
}
// x * 2^whole for 1 <= x <= 2 and whole >= -126.
FLOAT_INLINE Real times_power_of_two(Real x, Real whole) {
  const auto scale = [](Float value, Float power) -> Float {
    const int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(power.v), 23);
    return {vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value.v), exponent))};
  };
  return {scale(x.a, whole.a), scale(x.b, whole.b)};
}
FLOAT_INLINE Real zero_for_nan(Real x) {
  const auto number = [](float32x4_t value) -> Float {
    return {vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(value), vceqq_f32(value, value)))};
  };
  return {number(x.a.v), number(x.b.v)};
}
// Rounds to the nearest integer, ties away from zero.
FLOAT_INLINE Real away_from_zero(Real x) { return {{vrndaq_f32(x.a.v)}, {vrndaq_f32(x.b.v)}}; }
// Distance from the nearest integer.
FLOAT_INLINE Real distance(Real x) {
  return {{vabdq_f32(x.a.v, vrndnq_f32(x.a.v))}, {vabdq_f32(x.b.v, vrndnq_f32(x.b.v))}};
}
FLOAT_INLINE void store_limited(std::uint8_t* to, int32x4_t a, int32x4_t b, std::int64_t n) {
  const uint8x8_t bytes = vqmovun_s16(vqmovn_high_s32(vqmovn_s32(a), b));
  if (n >= Real::kLanes) {
    vst1_u8(to, bytes);
  } else {
    std::uint8_t few[Real::kLanes];
    vst1_u8(few, bytes);
    for (int i = 0; i < n; ++i) to[i] = few[i];
  }
}
// Stores the first n elements, rounded to the nearest integer and saturated to bytes.
FLOAT_INLINE void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
  const Real limited = smaller(x, Real::broadcast(255.0f));
  store_limited(to, vcvtnq_s32_f32(limited.a.v), vcvtnq_s32_f32(limited.b.v), n);
}
// Stores the first n elements, rounded to the nearest integer, with offset and limits.
FLOAT_INLINE void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
  const Real limited = smaller(x, Real::broadcast(0x1p20f));
  const int32x4_t offset = vdupq_n_s32(form.offset), low = vdupq_n_s32(form.low), high = vdupq_n_s32(form.high);
  const auto value = [&](Float real) {
    return vminq_s32(vmaxq_s32(vqaddq_s32(vcvtnq_s32_f32(real.v), offset), low), high);
  };
  store_limited(to, value(limited.a), value(limited.b), n);
}

}  // namespace
}  // namespace tpuconvert

// These use the definitions above.
#include "int8/quantize/eight_lanes.h"
#include "int8/quantize/quantize_rows_tile.h"

namespace tpuconvert {

const QuantizeRowKernels kQuantizeRowsNeon = kKernels;

}  // namespace tpuconvert
#endif
