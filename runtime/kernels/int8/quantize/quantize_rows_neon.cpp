// Quantization of rows with pairs of vectors of 4 lanes: as many lanes as AVX2, so that the bounds of the errors of sums
// are the same.
#if defined(__aarch64__)
#include <arm_neon.h>

#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  struct Real {
    float32x4_t a, b;
  };
  struct Wide {
    float64x2_t a, b;
  };
  struct Mask {
    uint32x4_t a, b;
  };
  static constexpr int kCount = 8;

  static Real all(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
  static Real load(const float* from) { return {vld1q_f32(from), vld1q_f32(from + 4)}; }
  static Real load_first(const float* from, std::int64_t n, Real rest) {
    float few[kCount];
    store(few, rest);
    for (int i = 0; i < n; ++i) few[i] = from[i];
    return load(few);
  }
  static void store(float* to, Real x) {
    vst1q_f32(to, x.a);
    vst1q_f32(to + 4, x.b);
  }
  static Real add(Real x, Real y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)}; }
  static Real subtract(Real x, Real y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)}; }
  static Real multiply(Real x, Real y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)}; }
  static Real fused(Real x, Real y, Real z) { return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)}; }
  // The larger or the smaller element; that of y if one of them is NaN.
  static float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
  static float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
  static Real larger(Real x, Real y) { return {larger(x.a, y.a), larger(x.b, y.b)}; }
  static Real smaller(Real x, Real y) { return {smaller(x.a, y.a), smaller(x.b, y.b)}; }
  // Splits x into floor(x), as an operand of times_power_of_two, and the fraction x - floor(x). NaN propagates to the
  // fraction.
  static Real split(Real x, Real* fraction) {
    const Real limited = larger(all(-126.0f), x);
    const Real whole = {vrndmq_f32(limited.a), vrndmq_f32(limited.b)};
    *fraction = subtract(limited, whole);
    return whole;
  }
  // x * 2^whole for 1 <= x <= 2 and whole >= -126.
  static Real times_power_of_two(Real x, Real whole) {
    const auto scaled = [](float32x4_t value, float32x4_t power) {
      const int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(power), 23);
      return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value), exponent));
    };
    return {scaled(x.a, whole.a), scaled(x.b, whole.b)};
  }
  static Real magnitude(Real x) { return {vabsq_f32(x.a), vabsq_f32(x.b)}; }
  static Real zero_for_nan(Real x) {
    const auto number = [](float32x4_t value) {
      return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_f32(value), vceqq_f32(value, value)));
    };
    return {number(x.a), number(x.b)};
  }
  // Rounds to the nearest integer, ties away from zero.
  static Real away_from_zero(Real x) { return {vrndaq_f32(x.a), vrndaq_f32(x.b)}; }
  // Distance from the nearest integer.
  static Real distance(Real x) { return {vabdq_f32(x.a, vrndnq_f32(x.a)), vabdq_f32(x.b, vrndnq_f32(x.b))}; }
  static float largest(Real x) {
    float lanes[kCount];
    store(lanes, x);
    float most = lanes[0];
    for (int i = 1; i < kCount; ++i) most = lanes[i] > most ? lanes[i] : most;
    return most;
  }
  static float sum(Real x) {
    float lanes[kCount];
    store(lanes, x);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }
  static Mask none() { return {vdupq_n_u32(0), vdupq_n_u32(0)}; }
  static Mask either(Mask x, Mask y) { return {vorrq_u32(x.a, y.a), vorrq_u32(x.b, y.b)}; }
  static Mask is_not_less(Real x, Real y) {
    return {vmvnq_u32(vcltq_f32(x.a, y.a)), vmvnq_u32(vcltq_f32(x.b, y.b))};
  }
  static bool any(Mask m) { return vmaxvq_u32(vorrq_u32(m.a, m.b)) != 0; }
  static void store_saturated(std::uint8_t* to, Real x, std::int64_t n) {
    const Real limited = smaller(x, all(255.0f));
    store_limited(to, vcvtnq_s32_f32(limited.a), vcvtnq_s32_f32(limited.b), n);
  }
  static void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, std::int64_t n) {
    const Real limited = smaller(x, all(0x1p20f));
    const int32x4_t offset = vdupq_n_s32(form.offset), low = vdupq_n_s32(form.low), high = vdupq_n_s32(form.high);
    const auto value = [&](float32x4_t real) {
      return vminq_s32(vmaxq_s32(vqaddq_s32(vcvtnq_s32_f32(real), offset), low), high);
    };
    store_limited(to, value(limited.a), value(limited.b), n);
  }

  static Wide all_wide(double x) { return {vdupq_n_f64(x), vdupq_n_f64(x)}; }
  static Wide load(const double* from) { return {vld1q_f64(from), vld1q_f64(from + 2)}; }
  static void store(double* to, Wide x) {
    vst1q_f64(to, x.a);
    vst1q_f64(to + 2, x.b);
  }
  static Wide add(Wide x, Wide y) { return {vaddq_f64(x.a, y.a), vaddq_f64(x.b, y.b)}; }
  static Wide subtract(Wide x, Wide y) { return {vsubq_f64(x.a, y.a), vsubq_f64(x.b, y.b)}; }
  static Wide multiply(Wide x, Wide y) { return {vmulq_f64(x.a, y.a), vmulq_f64(x.b, y.b)}; }
  static Wide fused(Wide x, Wide y, Wide z) { return {vfmaq_f64(z.a, x.a, y.a), vfmaq_f64(z.b, x.b, y.b)}; }
  static Wide larger(Wide x, Wide y) {
    return {vbslq_f64(vcgtq_f64(x.a, y.a), x.a, y.a), vbslq_f64(vcgtq_f64(x.b, y.b), x.b, y.b)};
  }
  static double sum(Wide x) {
    double lanes[4];
    store(lanes, x);
    return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
  }
  static Wide low_half(Real x) { return {vcvt_f64_f32(vget_low_f32(x.a)), vcvt_high_f64_f32(x.a)}; }
  static Wide high_half(Real x) { return {vcvt_f64_f32(vget_low_f32(x.b)), vcvt_high_f64_f32(x.b)}; }
  static Real narrow(Wide low, Wide high) {
    return {vcvt_high_f32_f64(vcvt_f32_f64(low.a), low.b), vcvt_high_f32_f64(vcvt_f32_f64(high.a), high.b)};
  }
  // x * 2^n for the integer n in the low bits of `shifted`.
  static Wide times_power_of_two(Wide x, Wide shifted) {
    const auto scaled = [](float64x2_t value, float64x2_t power) {
      const int64x2_t exponent = vshlq_n_s64(vreinterpretq_s64_f64(power), 52);
      return vreinterpretq_f64_s64(vaddq_s64(vreinterpretq_s64_f64(value), exponent));
    };
    return {scaled(x.a, shifted.a), scaled(x.b, shifted.b)};
  }

 private:
  static void store_limited(std::uint8_t* to, int32x4_t a, int32x4_t b, std::int64_t n) {
    const uint8x8_t bytes = vqmovun_s16(vqmovn_high_s32(vqmovn_s32(a), b));
    if (n >= kCount) {
      vst1_u8(to, bytes);
    } else {
      std::uint8_t few[kCount];
      vst1_u8(few, bytes);
      for (int i = 0; i < n; ++i) to[i] = few[i];
    }
  }
};

#include "int8/quantize/quantize_rows.inl"

}  // namespace

bool softmax_quantize_neon(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  return softmax_row(task, x, y, powers);
}

bool norm_quantize_neon(const NormQuantizeTask& task, const float* x, std::uint8_t* y) { return norm_row(task, x, y); }

void quantize_row_neon(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) {
  to_bytes(to, x, count, y);
}

void add_row_neon(const float* a, const float* b, std::int64_t count, float* sum) { add_row(a, b, count, sum); }

}  // namespace tpuconvert
#endif
