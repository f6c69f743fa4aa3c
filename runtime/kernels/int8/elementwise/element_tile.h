// Integer loops of ElementKernels. Include after the definition of `Vector`: the lanes of an instruction set with the
// interleaving of three planes.
#pragma once

#include <cstdint>

#include "int8/elementwise/element_kernels.h"

#define ELEMENT_INLINED __attribute__((always_inline))

namespace tpuconvert {
namespace {

using V = Vector::V;
using Pairs = Vector::Pairs;
using Bytes = Vector::Bytes;
constexpr int kLanes = Vector::kLanes, kVectors = Vector::kVectors, kPairs = kVectors * kLanes;

// Parameters of kRescale for adjacent lanes. Shifts and addends of products are for 64-bit halves.
struct Rescaling {
  V multiplier, second, again, offset;
  Vector::Wide first[2], half[2];

  template <typename Load>
  static inline ELEMENT_INLINED Rescaling of(Load load) {
    Rescaling p;
    p.multiplier = load(kMultiplier);
    p.second = load(kSecond);
    p.again = load(kAgain);
    p.offset = load(kOffset);
    const V first = load(kFirst), shift = Vector::wide_shift(first);
    const V bit = Vector::subtract(Vector::add(first, p.second), Vector::broadcast(1));
    p.first[0] = Vector::wide<0>(shift);
    p.first[1] = Vector::wide<1>(shift);
    p.half[0] = Vector::wide_power_of_two(Vector::wide<0>(bit));
    p.half[1] = Vector::wide_power_of_two(Vector::wide<1>(bit));
    return p;
  }
  static inline ELEMENT_INLINED Rescaling at(const Lanes& lanes, int i) {
    return of([&](int name) ELEMENT_INLINED { return Vector::load(lanes.parameters[name] + i); });
  }
  static inline ELEMENT_INLINED Rescaling of_all(const Lanes& lanes) {
    return of([&](int name) ELEMENT_INLINED { return Vector::broadcast(lanes.parameters[name][0]); });
  }
};

// The halves of the lanes are shifted separately as 64-bit products, because the products do not fit 32 bits.
template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
inline ELEMENT_INLINED V rescaled(V x, const Rescaling& p) {
  Vector::Wide products[2] = {Vector::products<0>(x, p.multiplier), Vector::products<1>(x, p.multiplier)};
  if (kIsWide) {
    products[0] = Vector::add_wide(products[0], p.half[0]);
    products[1] = Vector::add_wide(products[1], p.half[1]);
  }
  V h = Vector::join(Vector::shift_wide(products[0], p.first[0]), Vector::shift_wide(products[1], p.first[1]));
  if (kHasSecond) h = Vector::shift_right_by(h, p.second);
  if (!kIsWide) h = Vector::half_up(h);
  if (kHasAgain) {
    const V twice = Vector::half_up(Vector::shift_right_by(Vector::add(h, Vector::sign(h)), p.again));
    h = Vector::where_negative(p.again, h, twice);
  }
  return Vector::add(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
void rescale_all(const Lanes& lanes) {
  const auto put = [&](int i, const Rescaling& p) ELEMENT_INLINED {
    Vector::store(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(Vector::load(lanes.a + i), p));
  };
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += kLanes) put(i, Rescaling::at(lanes, i));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += kLanes) put(i, p);
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

// Scales and addends of linear_sum for adjacent lanes.
struct Factors {
  Pairs scales;
  V offsets[kVectors];

  static inline ELEMENT_INLINED Factors at(const Lanes& lanes, int i) {
    Factors f;
    f.scales = Vector::load_factors(lanes.parameters[0] + i);
    for (int k = 0; k < kVectors; ++k) f.offsets[k] = Vector::load(lanes.parameters[1] + i + k * kLanes);
    return f;
  }
  static inline ELEMENT_INLINED Factors of_all(const Lanes& lanes) {
    Factors f;
    f.scales = Vector::broadcast_factors(lanes.parameters[0][0]);
    for (V& offset : f.offsets) offset = Vector::broadcast(lanes.parameters[1][0]);
    return f;
  }
};

template <bool kHasB>
inline ELEMENT_INLINED void sum_products(Pairs x, const Factors& f, V (&sums)[kVectors]) {
  for (int k = 0; k < kVectors; ++k) sums[k] = f.offsets[k];
  Vector::add_products<kHasB>(sums, x, f.scales);
}

// Calls function(first lane, pairs, number of pairs) for elements of one or two operands. Nothing is read after the
// last element: the last vector may overlap the one before. It is loaded first, because results may overwrite an
// operand.
template <bool kHasB, typename Function>
inline ELEMENT_INLINED void for_pairs(const std::uint8_t* a, const std::uint8_t* b, int count, Function function) {
  const auto load = [](const std::uint8_t* from_a, const std::uint8_t* from_b, auto... n) ELEMENT_INLINED {
    return kHasB ? Vector::load_pairs(from_a, from_b, n...) : Vector::load_elements(from_a, n...);
  };
  const int last = count - kPairs;
  const Pairs x = last < 0 ? load(a, b, count) : load(a + last, b + last);
  for (int i = 0; i < last; i += kPairs) function(i, load(a + i, b + i), kPairs);
  function(last < 0 ? 0 : last, x, last < 0 ? count : kPairs);
}

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  Factors f = Factors::of_all(lanes);
  for_pairs<kHasB>(a, b, lanes.count, [&](int i, Pairs x, int) ELEMENT_INLINED {
    if (lanes.is_per_lane) f = Factors::at(lanes, i);
    V sums[kVectors];
    sum_products<kHasB>(x, f, sums);
    for (int k = 0; k < kVectors; ++k) Vector::store(lanes.out + i + k * kLanes, sums[k]);
  });
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, a, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

// to[i] = function(a[i], b[i]) for registers of bytes. The last register may overlap the one before. It is computed
// first, because results may overwrite an operand.
template <typename Function>
inline ELEMENT_INLINED void for_bytes(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, int count,
                                      Function function) {
  const int last = count - Vector::kBytes;
  const auto load = [=](const std::uint8_t* from) ELEMENT_INLINED {
    return last < 0 ? Vector::load_register(from, count) : Vector::load_register(from + last);
  };
  const Bytes result = function(load(a), load(b));
  for (int i = 0; i < last; i += Vector::kBytes)
    Vector::store_register(to + i, function(Vector::load_register(a + i), Vector::load_register(b + i)));
  last < 0 ? Vector::store_register(to, result, count) : Vector::store_register(to + last, result);
}

// One set of parameters for all elements, so that the order of intermediate values does not matter.
template <bool kHasSecond, bool kHasAgain>
void residual_of_tensors(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                         const StoreLimits& limits, std::uint8_t* to, int count) {
  const Factors f = Factors::of_all(sum);
  Rescaling p = Rescaling::of_all(rescaling);
  p.offset = Vector::add(p.offset, Vector::broadcast(limits.bias));
  const Bytes low = Vector::broadcast_byte(limits.low + limits.bias);
  const Bytes high = Vector::broadcast_byte(limits.high + limits.bias);
  for_bytes(a, b, to, count, [&](Bytes x, Bytes y) ELEMENT_INLINED {
    Pairs pairs[Vector::kGroups];
    Vector::pair(x, y, pairs);
    V results[Vector::kGroups][kVectors];
    for (int group = 0; group < Vector::kGroups; ++group) {
      sum_products<true>(pairs[group], f, results[group]);
      for (V& result : results[group]) result = rescaled<kHasSecond, kHasAgain>(result, p);
    }
    return Vector::clamp_bytes(Vector::pack(results), low, high);
  });
}

// Per-channel parameters require that lanes stay in memory order.
template <bool kHasSecond, bool kHasAgain>
void residual_of_lanes(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                       const StoreLimits& limits, std::uint8_t* to, int count) {
  Factors f = Factors::of_all(sum);
  Rescaling p = Rescaling::of_all(rescaling);
  const V low = Vector::broadcast(limits.low), high = Vector::broadcast(limits.high);
  const V bias = Vector::broadcast(limits.bias);
  for_pairs<true>(a, b, count, [&](int i, Pairs x, int n) ELEMENT_INLINED {
    if (sum.is_per_lane) f = Factors::at(sum, i);
    V sums[kVectors];
    sum_products<true>(x, f, sums);
    for (int k = 0; k < kVectors; ++k) {
      if (rescaling.is_per_lane) p = Rescaling::at(rescaling, i + k * kLanes);
      const V limited = Vector::smaller(Vector::larger(rescaled<kHasSecond, kHasAgain>(sums[k], p), low), high);
      const V result = Vector::add(limited, bias);
      if (n == kPairs)
        Vector::store_bytes(to + i + k * kLanes, result);
      else
        Vector::store_bytes(to + i + k * kLanes, result, n - k * kLanes);
    }
  });
}

template <bool kHasSecond, bool kHasAgain>
void residual_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                 const StoreLimits& limits, std::uint8_t* to, int count) {
  if (sum.is_per_lane || rescaling.is_per_lane)
    residual_of_lanes<kHasSecond, kHasAgain>(a, b, sum, rescaling, limits, to, count);
  else
    residual_of_tensors<kHasSecond, kHasAgain>(a, b, sum, rescaling, limits, to, count);
}

void residual(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
              const StoreLimits& limits, std::uint8_t* to, int count) {
  if (rescaling.has_again)
    rescaling.has_second ? residual_of<true, true>(a, b, sum, rescaling, limits, to, count)
                         : residual_of<false, true>(a, b, sum, rescaling, limits, to, count);
  else
    rescaling.has_second ? residual_of<true, false>(a, b, sum, rescaling, limits, to, count)
                         : residual_of<false, false>(a, b, sum, rescaling, limits, to, count);
}

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  int i = 0;
  for (; i + Vector::kPixels <= count; i += Vector::kPixels) Vector::interleave(planes, i, to + 3 * i);
  for (; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

}  // namespace
}  // namespace tpuconvert
