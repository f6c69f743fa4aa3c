#if defined(__aarch64__)
#include <arm_neon.h>

#include "general/conv_rows_tile.h"

namespace tpuconvert {

namespace {

struct Words {
  static constexpr std::int64_t kLanes = 4;
  int32x4_t x;
  static Words zero() { return {vdupq_n_s32(0)}; }
  static Words load(const std::int32_t* from) { return {vld1q_s32(from)}; }
  static Words broadcast(std::int32_t value) { return {vdupq_n_s32(value)}; }
  static Words multiply_add(const Words& a, const Words& b, const Words& c) {
    const int32x4_t first = vmlal_s16(c.x, vmovn_s32(a.x), vmovn_s32(b.x));
    return {vmlal_s16(first, vshrn_n_s32(a.x, 16), vshrn_n_s32(b.x, 16))};
  }
  void store(std::int32_t* to) const { vst1q_s32(to, x); }
};

// No fused operations: every instruction set rounds the products as the scalar code does.
struct Doubles {
  static constexpr std::int64_t kLanes = 2;
  float64x2_t x;
  static Doubles zero() { return {vdupq_n_f64(0.0)}; }
  static Doubles load(const double* from) { return {vld1q_f64(from)}; }
  static Doubles broadcast(double value) { return {vdupq_n_f64(value)}; }
  static Doubles multiply_add(const Doubles& a, const Doubles& b, const Doubles& c) {
    return {vaddq_f64(c.x, vmulq_f64(a.x, b.x))};
  }
  void store(double* to) const { vst1q_f64(to, x); }
};

}  // namespace

ConvRows conv_rows_neon() { return {add_rows<Doubles, double>, add_rows<Words, std::int32_t>}; }

}  // namespace tpuconvert
#endif
