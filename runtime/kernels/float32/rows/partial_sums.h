// Vectors of sixteen float64 partial results, for any register width. Include after the vector header of an instruction
// set.
#pragma once

#include <cstdint>

#include "float32/epilogue.h"

namespace tpuconvert {
namespace {

constexpr int kPartial = 16;
constexpr int kSixteenDoubles = kPartial / Double::kLanes;

struct Sixteen {
  Double part[kSixteenDoubles];

  FLOAT_INLINE static Sixteen broadcast(double x) {
    Sixteen result;
    for (int i = 0; i < kSixteenDoubles; ++i) result.part[i] = Double::broadcast(x);
    return result;
  }

  // Loads n elements, 0 < n <= 16, and fills the remaining lanes with `rest`.
  FLOAT_INLINE static Sixteen load(const float* from, std::int64_t n, float rest = 0) {
    alignas(64) float few[kPartial];
    if (n < kPartial) {
      for (int i = 0; i < kPartial; ++i) few[i] = i < n ? from[i] : rest;
      from = few;
    }
    Sixteen result;
    for (int i = 0; i < kPartial / Float::kLanes; ++i) {
      Double halves[2];
      widen(Float::load(from + i * Float::kLanes), halves);
      result.part[2 * i] = halves[0];
      result.part[2 * i + 1] = halves[1];
    }
    return result;
  }

  FLOAT_INLINE static Sixteen load(const double* from) {
    Sixteen result;
    for (int i = 0; i < kSixteenDoubles; ++i) result.part[i] = Double::load(from + i * Double::kLanes);
    return result;
  }

  FLOAT_INLINE void store(double* to) const {
    for (int i = 0; i < kSixteenDoubles; ++i) part[i].store(to + i * Double::kLanes);
  }

  // Rounds to float32 and stores the first n elements.
  FLOAT_INLINE void store(float* to, std::int64_t n) const {
    for (int i = 0; i < kPartial / Float::kLanes; ++i) {
      const std::int64_t left = n - i * Float::kLanes;
      if (left <= 0) return;
      const Double halves[2] = {part[2 * i], part[2 * i + 1]};
      store_lanes(narrow(halves), to + i * Float::kLanes, left < Float::kLanes ? static_cast<int>(left) : Float::kLanes);
    }
  }
};

template <typename F>
FLOAT_INLINE Sixteen each(const Sixteen& a, const Sixteen& b, F&& function) {
  Sixteen result;
  for (int i = 0; i < kSixteenDoubles; ++i) result.part[i] = function(a.part[i], b.part[i]);
  return result;
}

FLOAT_INLINE Sixteen operator+(const Sixteen& a, const Sixteen& b) {
  return each(a, b, [](Double x, Double y) __attribute__((always_inline)) { return x + y; });
}
FLOAT_INLINE Sixteen operator-(const Sixteen& a, const Sixteen& b) {
  return each(a, b, [](Double x, Double y) __attribute__((always_inline)) { return x - y; });
}
FLOAT_INLINE Sixteen operator*(const Sixteen& a, const Sixteen& b) {
  return each(a, b, [](Double x, Double y) __attribute__((always_inline)) { return x * y; });
}

// Combines the partial results in a fixed tree.
template <typename F>
FLOAT_INLINE double folded(const Sixteen& partial, F&& function) {
  alignas(64) double numbers[kPartial];
  partial.store(numbers);
  for (int half = kPartial / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) numbers[i] = function(numbers[i], numbers[i + half]);
  return numbers[0];
}

FLOAT_INLINE double sum_of(const Sixteen& partial) {
  return folded(partial, [](double a, double b) { return a + b; });
}

}  // namespace
}  // namespace tpuconvert
