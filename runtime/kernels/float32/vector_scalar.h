// Vector types of four float32 or two float64 elements for every processor: generic vectors of the compiler, which become
// what the baseline has. Arrays instead take three times as long to compile.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#define FLOAT_INLINE inline __attribute__((always_inline))

namespace tpuconvert {
namespace {

// Vectors with one element per lane, and masks with one Boolean per lane.
template <typename T, int kCount>
struct Lanes {
  T lane __attribute__((vector_size(kCount * sizeof(T))));
};
template <int kCount>
struct Lanes<bool, kCount> {
  bool lane[kCount];
};

template <typename T, int kCount, typename F>
FLOAT_INLINE Lanes<T, kCount> each_lane(F&& function) {
  Lanes<T, kCount> result;
  for (int i = 0; i < kCount; ++i) result.lane[i] = function(i);
  return result;
}

struct Float {
  static constexpr int kLanes = 4;
  Lanes<float, kLanes> v;

  FLOAT_INLINE static Float zero() { return broadcast(0.0f); }
  FLOAT_INLINE static Float broadcast(float x) {
    return {each_lane<float, kLanes>([&](int) { return x; })};
  }
  FLOAT_INLINE static Float load(const float* from) {
    return {each_lane<float, kLanes>([&](int i) { return from[i]; })};
  }
  // Loads the first n lanes, 0 < n <= kLanes; the others are 0.
  FLOAT_INLINE static Float load_first(const float* from, int n) {
    return {each_lane<float, kLanes>([&](int i) { return i < n ? from[i] : 0.0f; })};
  }
  // Converts kLanes integers.
  template <typename T>
  FLOAT_INLINE static Float of_integers(const T* from) {
    return {each_lane<float, kLanes>([&](int i) { return static_cast<float>(from[i]); })};
  }
  FLOAT_INLINE void store(float* to) const { store_first(to, kLanes); }
  FLOAT_INLINE void store_first(float* to, int n) const {
    for (int i = 0; i < n; ++i) to[i] = v.lane[i];
  }
};

struct FloatMask {
  Lanes<bool, Float::kLanes> m;
};

struct Double {
  static constexpr int kLanes = 2;
  Lanes<double, kLanes> v;

  FLOAT_INLINE static Double zero() { return broadcast(0.0); }
  FLOAT_INLINE static Double broadcast(double x) {
    return {each_lane<double, kLanes>([&](int) { return x; })};
  }
  FLOAT_INLINE static Double load(const double* from) {
    return {each_lane<double, kLanes>([&](int i) { return from[i]; })};
  }
  FLOAT_INLINE static Double load(const float* from) {
    return {each_lane<double, kLanes>([&](int i) { return static_cast<double>(from[i]); })};
  }
  FLOAT_INLINE void store(double* to) const {
    for (int i = 0; i < kLanes; ++i) to[i] = v.lane[i];
  }
  // Rounds each element to float32.
  FLOAT_INLINE void store(float* to) const {
    for (int i = 0; i < kLanes; ++i) to[i] = static_cast<float>(v.lane[i]);
  }
};

struct DoubleMask {
  Lanes<bool, Double::kLanes> m;
};

// A call of its own: without FMA instructions the lanes call the C library, and tiles that repeat the call of each lane
// double the time to compile them.
#define FLOAT_FUSED(type, scalar)                                                                                 \
  [[maybe_unused]] __attribute__((noinline)) type fused(type a, type b, type c) {                                 \
    return {each_lane<scalar, type::kLanes>([&](int i) { return std::fma(a.v.lane[i], b.v.lane[i], c.v.lane[i]); })}; \
  }
#define FLOAT_LANEWISE(result, type, scalar, name, parameters, expression)                 \
  FLOAT_INLINE result name parameters {                                                    \
    return {each_lane<scalar, type::kLanes>([&](int i) -> scalar { return expression; })}; \
  }
#define FLOAT_ARITHMETIC(type, mask, scalar)                                                                          \
  FLOAT_FUSED(type, scalar)                                                                                           \
  FLOAT_INLINE type less_product(type a, type b, type c) { return fused({{-a.v.lane}}, b, c); }                       \
  FLOAT_INLINE type operator+(type a, type b) { return {{a.v.lane + b.v.lane}}; }                                     \
  FLOAT_INLINE type operator-(type a, type b) { return {{a.v.lane - b.v.lane}}; }                                     \
  FLOAT_INLINE type operator*(type a, type b) { return {{a.v.lane * b.v.lane}}; }                                     \
  FLOAT_INLINE type operator/(type a, type b) { return {{a.v.lane / b.v.lane}}; }                                     \
  FLOAT_LANEWISE(type, type, scalar, larger, (type a, type b), a.v.lane[i] > b.v.lane[i] ? a.v.lane[i] : b.v.lane[i])  \
  FLOAT_LANEWISE(type, type, scalar, smaller, (type a, type b), a.v.lane[i] < b.v.lane[i] ? a.v.lane[i] : b.v.lane[i]) \
  FLOAT_LANEWISE(type, type, scalar, magnitude, (type a), std::fabs(a.v.lane[i]))                                     \
  FLOAT_LANEWISE(type, type, scalar, root, (type a), std::sqrt(a.v.lane[i]))                                          \
  FLOAT_LANEWISE(mask, type, bool, operator<, (type a, type b), a.v.lane[i] < b.v.lane[i])                            \
  FLOAT_LANEWISE(mask, type, bool, operator>=, (type a, type b), a.v.lane[i] >= b.v.lane[i])                          \
  FLOAT_LANEWISE(mask, type, bool, is_nan, (type a), a.v.lane[i] != a.v.lane[i])                                      \
  FLOAT_LANEWISE(type, type, scalar, select, (mask m, type yes, type no), m.m.lane[i] ? yes.v.lane[i] : no.v.lane[i])

// max(a, b) and min(a, b); b if a and b are equal or one of them is NaN.
FLOAT_ARITHMETIC(Float, FloatMask, float)
FLOAT_ARITHMETIC(Double, DoubleMask, double)
FLOAT_LANEWISE(Float, Float, float, round_down, (Float a), std::floor(a.v.lane[i]))
FLOAT_LANEWISE(Float, Float, float, round_up, (Float a), std::ceil(a.v.lane[i]))
FLOAT_LANEWISE(Float, Float, float, round_to_zero, (Float a), std::trunc(a.v.lane[i]))
FLOAT_LANEWISE(Float, Float, float, with_sign_of, (Float a, Float sign), std::copysign(a.v.lane[i], sign.v.lane[i]))

#undef FLOAT_ARITHMETIC
#undef FLOAT_LANEWISE
#undef FLOAT_FUSED

FLOAT_INLINE std::uint32_t bits_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
FLOAT_INLINE float with_bits(std::uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
FLOAT_INLINE bool all(FloatMask mask) {
  bool found = true;
  for (const bool lane : mask.m.lane) found = found && lane;
  return found;
}
// table[i] for the index i in the five lowest bits of each lane.
FLOAT_INLINE Float entry_of(const float (&table)[32], Float index) {
  return {each_lane<float, Float::kLanes>([&](int i) { return table[bits_of(index.v.lane[i]) % 32]; })};
}
// Like entry_of, with the bits of `index` << 18 added to the bits of the entry.
FLOAT_INLINE Float scaled_entry_of(const std::uint32_t (&table)[32], Float index) {
  return {each_lane<float, Float::kLanes>([&](int i) {
    const std::uint32_t bits = bits_of(index.v.lane[i]);
    return with_bits(table[bits % 32] + (bits << 18));
  })};
}
FLOAT_INLINE std::uint64_t bits_of(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
FLOAT_INLINE double with_bits(std::uint64_t bits) {
  double x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
// Conversions of a vector to two float64 vectors, and back with one rounding.
FLOAT_INLINE void widen(Float x, Double (&halves)[2]) {
  for (int i = 0; i < Float::kLanes; ++i)
    halves[i / Double::kLanes].v.lane[i % Double::kLanes] = static_cast<double>(x.v.lane[i]);
}
FLOAT_INLINE Float narrow(const Double (&halves)[2]) {
  Float x;
  for (int i = 0; i < Float::kLanes; ++i)
    x.v.lane[i] = static_cast<float>(halves[i / Double::kLanes].v.lane[i % Double::kLanes]);
  return x;
}
// a * 2^n for the integer n in the low bits of `shifted` = n + 1.5 * 2^52. The result must not overflow or be
// subnormal.
FLOAT_INLINE Double times_power_of_two(Double a, Double shifted) {
  return {each_lane<double, Double::kLanes>(
      [&](int i) { return with_bits(bits_of(a.v.lane[i]) + (bits_of(shifted.v.lane[i]) << 52)); })};
}
// Mantissa and exponent of a positive normal value: a = mantissa * 2^exponent with mantissa in [sqrt(1/2), sqrt(2)).
FLOAT_INLINE Double split_exponent(Double a, Double* exponent) {
  Double mantissa = a;
  for (int i = 0; i < Double::kLanes; ++i) {
    const std::uint64_t bits = bits_of(a.v.lane[i]) - 0x3FE6A09E667F3BCD;
    const std::int64_t power = static_cast<std::int64_t>(bits) >> 52;
    exponent->v.lane[i] = static_cast<double>(power);
    mantissa.v.lane[i] = with_bits(bits_of(a.v.lane[i]) - (static_cast<std::uint64_t>(power) << 52));
  }
  return mantissa;
}

}  // namespace
}  // namespace tpuconvert
