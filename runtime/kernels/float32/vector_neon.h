// Vectors of four float32 or two float64 elements. Include only in files that are compiled for AArch64.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

#define FLOAT_INLINE inline __attribute__((always_inline))

namespace tpuconvert {
namespace {

struct Float {
  static constexpr int kLanes = 4;
  float32x4_t v;

  FLOAT_INLINE static Float zero() { return {vdupq_n_f32(0.0f)}; }
  FLOAT_INLINE static Float broadcast(float x) { return {vdupq_n_f32(x)}; }
  FLOAT_INLINE static Float load(const float* from) { return {vld1q_f32(from)}; }
  // Loads the first n lanes, 0 < n <= kLanes; the others are 0.
  FLOAT_INLINE static Float load_first(const float* from, int n) {
    float few[kLanes] = {};
    for (int i = 0; i < n; ++i) few[i] = from[i];
    return load(few);
  }
  // Converts kLanes integers.
  FLOAT_INLINE static Float of_integers(const std::uint8_t* from) {
    std::uint32_t bytes;
    std::memcpy(&bytes, from, sizeof bytes);
    const uint16x8_t words = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(bytes)));
    return {vcvtq_f32_u32(vmovl_u16(vget_low_u16(words)))};
  }
  FLOAT_INLINE static Float of_integers(const std::uint16_t* from) { return {vcvtq_f32_u32(vmovl_u16(vld1_u16(from)))}; }
  FLOAT_INLINE static Float of_integers(const std::int16_t* from) { return {vcvtq_f32_s32(vmovl_s16(vld1_s16(from)))}; }
  FLOAT_INLINE void store(float* to) const { vst1q_f32(to, v); }
  FLOAT_INLINE void store_first(float* to, int n) const {
    float few[kLanes];
    store(few);
    for (int i = 0; i < n; ++i) to[i] = few[i];
  }
};

struct FloatMask {
  uint32x4_t m;
};

FLOAT_INLINE Float fused(Float a, Float b, Float c) { return {vfmaq_f32(c.v, a.v, b.v)}; }
// c - a * b, rounded once.
FLOAT_INLINE Float less_product(Float a, Float b, Float c) { return {vfmsq_f32(c.v, a.v, b.v)}; }
FLOAT_INLINE Float operator+(Float a, Float b) { return {vaddq_f32(a.v, b.v)}; }
FLOAT_INLINE Float operator-(Float a, Float b) { return {vsubq_f32(a.v, b.v)}; }
FLOAT_INLINE Float operator*(Float a, Float b) { return {vmulq_f32(a.v, b.v)}; }
FLOAT_INLINE Float operator/(Float a, Float b) { return {vdivq_f32(a.v, b.v)}; }
// max(a, b) and min(a, b); b if a and b are equal or one of them is NaN. The instructions for maxima propagate NaN and
// order zeros by sign, so that a comparison and a selection are needed.
FLOAT_INLINE Float larger(Float a, Float b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
FLOAT_INLINE Float smaller(Float a, Float b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
FLOAT_INLINE Float magnitude(Float a) { return {vabsq_f32(a.v)}; }
FLOAT_INLINE Float root(Float a) { return {vsqrtq_f32(a.v)}; }
FLOAT_INLINE Float round_down(Float a) { return {vrndmq_f32(a.v)}; }
FLOAT_INLINE Float round_up(Float a) { return {vrndpq_f32(a.v)}; }
FLOAT_INLINE Float round_to_zero(Float a) { return {vrndq_f32(a.v)}; }
FLOAT_INLINE Float with_sign_of(Float a, Float sign) { return {vbslq_f32(vdupq_n_u32(0x80000000u), sign.v, a.v)}; }
FLOAT_INLINE FloatMask operator<(Float a, Float b) { return {vcltq_f32(a.v, b.v)}; }
FLOAT_INLINE FloatMask operator>=(Float a, Float b) { return {vcgeq_f32(a.v, b.v)}; }
FLOAT_INLINE FloatMask is_nan(Float a) { return {vmvnq_u32(vceqq_f32(a.v, a.v))}; }
FLOAT_INLINE Float select(FloatMask m, Float yes, Float no) { return {vbslq_f32(m.m, yes.v, no.v)}; }
FLOAT_INLINE bool all(FloatMask m) { return vminvq_u32(m.m) == ~0u; }
// table[i] for the index i in the five lowest bits of each lane: two byte lookups in 64 bytes each. A lookup gives 0 for
// an index out of range, an extending lookup keeps the byte.
FLOAT_INLINE Float entry_of(const float* table, Float index) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
  const uint32x4_t entry = vandq_u32(vreinterpretq_u32_f32(index.v), vdupq_n_u32(31));
  const uint32x4_t first = vmlaq_u32(vdupq_n_u32(0x03020100u), entry, vdupq_n_u32(0x04040404u));
  const uint8x16_t low = vqtbl4q_u8(vld1q_u8_x4(bytes), vreinterpretq_u8_u32(first));
  const uint8x16_t upper = vsubq_u8(vreinterpretq_u8_u32(first), vdupq_n_u8(64));
  return {vreinterpretq_f32_u8(vqtbx4q_u8(low, vld1q_u8_x4(bytes + 64), upper))};
}
// Like entry_of, with the bits of `index` << 18 added to the bits of the entry.
FLOAT_INLINE Float scaled_entry_of(const std::uint32_t (&table)[32], Float index) {
  const uint32x4_t entry = vreinterpretq_u32_f32(entry_of(reinterpret_cast<const float*>(table), index).v);
  return {vreinterpretq_f32_u32(vaddq_u32(entry, vshlq_n_u32(vreinterpretq_u32_f32(index.v), 18)))};
}

struct Double {
  static constexpr int kLanes = 2;
  float64x2_t v;

  FLOAT_INLINE static Double zero() { return {vdupq_n_f64(0.0)}; }
  FLOAT_INLINE static Double broadcast(double x) { return {vdupq_n_f64(x)}; }
  FLOAT_INLINE static Double load(const double* from) { return {vld1q_f64(from)}; }
  FLOAT_INLINE static Double load(const float* from) { return {vcvt_f64_f32(vld1_f32(from))}; }
  FLOAT_INLINE void store(double* to) const { vst1q_f64(to, v); }
  // Rounds each element to float32.
  FLOAT_INLINE void store(float* to) const { vst1_f32(to, vcvt_f32_f64(v)); }
};

struct DoubleMask {
  uint64x2_t m;
};

FLOAT_INLINE Double fused(Double a, Double b, Double c) { return {vfmaq_f64(c.v, a.v, b.v)}; }
FLOAT_INLINE Double operator+(Double a, Double b) { return {vaddq_f64(a.v, b.v)}; }
FLOAT_INLINE Double operator-(Double a, Double b) { return {vsubq_f64(a.v, b.v)}; }
FLOAT_INLINE Double operator*(Double a, Double b) { return {vmulq_f64(a.v, b.v)}; }
FLOAT_INLINE Double operator/(Double a, Double b) { return {vdivq_f64(a.v, b.v)}; }
FLOAT_INLINE Double larger(Double a, Double b) { return {vbslq_f64(vcgtq_f64(a.v, b.v), a.v, b.v)}; }
FLOAT_INLINE Double smaller(Double a, Double b) { return {vbslq_f64(vcltq_f64(a.v, b.v), a.v, b.v)}; }
FLOAT_INLINE Double magnitude(Double a) { return {vabsq_f64(a.v)}; }
FLOAT_INLINE Double root(Double a) { return {vsqrtq_f64(a.v)}; }
FLOAT_INLINE DoubleMask operator<(Double a, Double b) { return {vcltq_f64(a.v, b.v)}; }
FLOAT_INLINE DoubleMask operator>=(Double a, Double b) { return {vcgeq_f64(a.v, b.v)}; }
FLOAT_INLINE DoubleMask is_nan(Double a) {
  return {vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(vceqq_f64(a.v, a.v))))};
}
FLOAT_INLINE Double select(DoubleMask m, Double yes, Double no) { return {vbslq_f64(m.m, yes.v, no.v)}; }
// Conversions of a register to two float64 registers, and back with one rounding.
FLOAT_INLINE void widen(Float x, Double (&halves)[2]) {
  halves[0].v = vcvt_f64_f32(vget_low_f32(x.v));
  halves[1].v = vcvt_high_f64_f32(x.v);
}
FLOAT_INLINE Float narrow(const Double (&halves)[2]) {
  return {vcvt_high_f32_f64(vcvt_f32_f64(halves[0].v), halves[1].v)};
}
// a * 2^n for the integer n in the low bits of `shifted` = n + 1.5 * 2^52. The result must not overflow or be
// subnormal.
FLOAT_INLINE Double times_power_of_two(Double a, Double shifted) {
  const uint64x2_t exponent = vshlq_n_u64(vreinterpretq_u64_f64(shifted.v), 52);
  return {vreinterpretq_f64_u64(vaddq_u64(vreinterpretq_u64_f64(a.v), exponent))};
}
// Mantissa and exponent of a positive normal value: a = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)).
FLOAT_INLINE Double split_exponent(Double a, Double* exponent) {
  const uint64x2_t bits = vsubq_u64(vreinterpretq_u64_f64(a.v), vdupq_n_u64(0x3FE6A09E667F3BCD));
  const int64x2_t power = vshrq_n_s64(vreinterpretq_s64_u64(bits), 52);
  exponent->v = vcvtq_f64_s64(power);
  const uint64x2_t scaled = vsubq_u64(vreinterpretq_u64_f64(a.v), vreinterpretq_u64_s64(vshlq_n_s64(power, 52)));
  return {vreinterpretq_f64_u64(scaled)};
}

}  // namespace
}  // namespace tpuconvert
