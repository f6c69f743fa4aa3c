// Implementation of quantize_rows.h. Include after float32/vector_*.h and the definitions for an instruction set: the
// vectors `Real` and `Wide` of float32 and float64 elements, `Mask`, and the operations that only these kernels have.
#pragma once

#include <cstdint>

#include "int8/quantize/quantize_rows.h"

#define ROWS_INLINED __attribute__((always_inline))

namespace tpuconvert {
namespace {

constexpr int kLanes = Real::kLanes;

// 2^x with a relative error of at most 4.2 * 2^-24; approximately 0 for very small x.
inline Real power_of_two(Real x) {
  Real fraction;  // x - floor(x), rounded; may be 1
  const Real whole = split(x, &fraction);
  // A polynomial that approximates 2^fraction with the smallest possible relative error, at most 1.6 * 2^-24.
  Real q = Real::broadcast(0.00187757588f);
  q = fused(q, fraction, Real::broadcast(0.00898934156f));
  q = fused(q, fraction, Real::broadcast(0.0558263175f));
  q = fused(q, fraction, Real::broadcast(0.240153611f));
  q = fused(q, fraction, Real::broadcast(0.693153083f));
  q = fused(q, fraction, Real::broadcast(0.99999994f));
  return times_power_of_two(q, whole);
}

// 2^x in float64 with a relative error below 2^-34; 2^-1000 for smaller x.
inline Wide wide_power_of_two(Wide x) {
  const Wide shifter = Wide::broadcast(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const Wide limited = larger(Wide::broadcast(-1000.0), x);  // NaN propagates
  const Wide shifted = limited + shifter;
  const Wide r = limited - (shifted - shifter);
  Wide q = Wide::broadcast(1.5195577511555006e-05);
  q = fused(q, r, Wide::broadcast(0.00015469236479087335));
  q = fused(q, r, Wide::broadcast(0.0013333950083526552));
  q = fused(q, r, Wide::broadcast(0.00961802745797812));
  q = fused(q, r, Wide::broadcast(0.0555041031948787));
  q = fused(q, r, Wide::broadcast(0.24022651196252703));
  q = fused(q, r, Wide::broadcast(0.693147180738832));
  q = fused(q, r, Wide::broadcast(0.9999999999619436));
  return times_power_of_two(q, shifted);
}

inline bool is_plain(const ByteQuantization& to) { return to.offset == 0 && to.low == 0 && to.high == 255; }

constexpr float kBase = 1.44269504f;  // 1 / ln(2) with a relative error below 2^-26
constexpr double kWideBase = 1.4426950408889634;

// Loads n lanes and fills the remaining lanes with `rest`.
inline Real load_up_to(const float* from, std::int64_t n, float rest = -__builtin_inff()) {
  return n >= kLanes ? Real::load(from) : load_first(from, n, Real::broadcast(rest));
}

inline void store_bytes(std::uint8_t* to, Real x, const ByteQuantization& form, bool is_plain, std::int64_t n) {
  if (is_plain) {
    store_saturated(to, x, n);
  } else {
    store_bytes(to, x, form, n);
  }
}

inline float largest_of(const float* x, std::int64_t count) {
  Real most = load_up_to(x, count);
  for (std::int64_t i = kLanes; i < count; i += kLanes)
    most = larger(load_up_to(x + i, count - i), most);
  return largest_of(most);
}

// Computes a row in float32. Returns false if an element is ambiguous.
inline bool narrow_row(const SoftmaxQuantizeTask& task, const float* x, float largest, std::uint8_t* y, float* powers) {
  // Because `shift` is rounded, the powers are exp(x - largest) times a common factor near 1, which the quotient
  // cancels.
  if (!(largest > -0x1p22f && largest < 0x1p22f)) return false;
  const std::int64_t count = task.count;
  const Real base = Real::broadcast(kBase), shift = Real::broadcast(largest * -kBase);
  Real sum = Real::broadcast(0.0f);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Real power = power_of_two(fused(load_up_to(x + i, count - i), base, shift));
    power.store(powers + i);
    sum = sum + power;
  }
  const Real factor = Real::broadcast(task.to.scale / sum_of(sum));
  const Real error_bound = Real::broadcast(-task.error_bound), half = Real::broadcast(0.5f);
  const bool plain = is_plain(task.to);
  Mask is_clear = all_lanes();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Real scaled = Real::load(powers + i) * factor;
    // NaN is not clear, and neither is a tie for any error bound.
    is_clear = both(is_clear, distance(scaled) < fused(scaled, error_bound, half));
    store_bytes(y + i, scaled, task.to, plain, count - i);
  }
  return all(is_clear);
}

// Recomputes elements whose product is close to a tie. Returns false if a probability is also so close to the middle of
// two float32 values that the float64 error may decide.
inline bool settle(const SoftmaxQuantizeTask& task, const double* powers, double inverse, std::uint8_t* y) {
  constexpr double kGuard = 0x1p-32;
  for (std::int64_t i = 0; i < task.count; ++i) {
    const double exact = powers[i] * inverse;
    const float scaled = static_cast<float>(exact) * task.to.scale;
    const float rest = scaled - __builtin_floorf(scaled);
    if (rest < 0.5f - scaled * 0x1p-22f || rest > 0.5f + scaled * 0x1p-22f) continue;
    if (!(static_cast<float>(exact * (1 + kGuard)) == static_cast<float>(exact * (1 - kGuard)))) return false;
    const int stored = static_cast<int>(scaled) + (rest >= 0.5f) + task.to.offset;
    const int limited = stored < task.to.low ? task.to.low : stored;
    y[i] = static_cast<std::uint8_t>(limited > task.to.high ? task.to.high : limited);
  }
  return true;
}

// Computes a row in float64 up to the probability, which is rounded to float32 as in the definition.
inline bool wide_row(const SoftmaxQuantizeTask& task, const float* x, float largest, std::uint8_t* y, double* powers) {
  // The rounding of `shift` is a common factor of all powers. Below this bound it is near 1, above it may overflow.
  if (!(largest > -0x1p40f && largest < 0x1p40f)) return false;
  const std::int64_t count = task.count;
  const Wide base = Wide::broadcast(kWideBase);
  const Wide shift = Wide::broadcast(static_cast<double>(largest) * -kWideBase);
  Wide low_sum = Wide::broadcast(0.0), high_sum = low_sum;
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Real part = load_up_to(x + i, count - i);
    Wide halves[2];
    widen(part, halves);
    const Wide low = wide_power_of_two(fused(halves[0], base, shift));
    const Wide high = wide_power_of_two(fused(halves[1], base, shift));
    low.store(powers + i);
    high.store(powers + i + kLanes / 2);
    low_sum = low_sum + low;
    high_sum = high_sum + high;
  }
  const double inverse = 1.0 / sum_of(low_sum + high_sum);
  const Wide factor = Wide::broadcast(inverse);
  const Real scale = Real::broadcast(task.to.scale);
  const Real error_bound = Real::broadcast(-0x1p-22f), half = Real::broadcast(0.5f);
  const bool plain = is_plain(task.to);
  Mask is_clear = all_lanes();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Wide halves[2] = {Wide::load(powers + i) * factor, Wide::load(powers + i + kLanes / 2) * factor};
    const Real scaled = narrow(halves) * scale;
    is_clear = both(is_clear, distance(scaled) < fused(scaled, error_bound, half));
    store_bytes(y + i, scaled, task.to, plain, count - i);
  }
  // settle() cannot handle a NaN sum, which makes every element ambiguous.
  return all(is_clear) || (inverse == inverse && settle(task, powers, inverse, y));
}

inline bool softmax_row(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  const float largest = largest_of(x, task.count);
  if (!task.is_often_ambiguous && narrow_row(task, x, largest, y, reinterpret_cast<float*>(powers))) return true;
  return wide_row(task, x, largest, y, powers);
}

// --- normalization ---------------------------------------------------------------------------------------------------

// Sums next(partial sum, index of the first element) over the vectors of a row. Two partial sums hide the latency of
// additions. The last vector may be incomplete.
template <typename Next>
inline float sum_of_vectors(std::int64_t count, const Next& next) {
  Real first = Real::broadcast(0.0f), second = first;
  std::int64_t i = 0;
  for (; i + kLanes < count; i += 2 * kLanes) {
    first = next(first, i);
    second = next(second, i + kLanes);
  }
  if (i < count) first = next(first, i);
  return sum_of(first + second);
}

inline bool norm_row(const NormQuantizeTask& task, const float* x, std::uint8_t* y) {
  const std::int64_t count = task.count;
  const float length = static_cast<float>(count);
  const float mean = sum_of_vectors(count, [&](Real sum, std::int64_t i) ROWS_INLINED {
                       return sum + load_up_to(x + i, count - i, 0.0f);
                     }) / length;

  const Real center = Real::broadcast(mean);
  const float squares = sum_of_vectors(count, [&](Real sum, std::int64_t i) ROWS_INLINED {
    const Real centered = load_up_to(x + i, count - i, mean) - center;
    return fused(centered, centered, sum);
  });
  const double variance = static_cast<double>(squares / length) + task.epsilon;
  const double inverse = 1.0 / __builtin_sqrt(variance);
  const double from_zero = static_cast<double>(mean) * inverse;  // of the mean from 0, in deviations
  if (!(from_zero > -64.0 && from_zero < 64.0 && variance > 0x1p-60 && variance < 0x1p60)) return false;

  const auto deviations = static_cast<float>(from_zero < 0 ? -from_zero : from_zero);
  const float error_bound = task.error_bound + task.mean_error * (1.0f + deviations);
  const Real factor = Real::broadcast(static_cast<float>(inverse)), limit = Real::broadcast(0.5f - error_bound);
  const Real slope = Real::broadcast(-task.relative_error);
  Mask is_clear = all_lanes();
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Real normal = (load_up_to(x + i, count - i, mean) - center) * factor;
    const Real scaled = fused(normal, Real::load(task.factor + i), Real::load(task.bias + i));
    const Real allowed = fused(magnitude(scaled), slope, limit);
    is_clear = both(is_clear, distance(scaled) < allowed);
    store_bytes(y + i, scaled, task.to, count - i);
  }
  return all(is_clear);
}

inline void to_bytes(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) {
  const Real scale = Real::broadcast(to.scale), most = Real::broadcast(0x1p20f), least = Real::broadcast(-0x1p20f);
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Real scaled = zero_for_nan(load_up_to(x + i, count - i, 0.0f) * scale);
    const Real limited = larger(smaller(scaled, most), least);
    store_bytes(y + i, away_from_zero(limited), to, count - i);
  }
}

inline void add_row(const float* a, const float* b, std::int64_t count, float* sum) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) (Real::load(a + i) + Real::load(b + i)).store(sum + i);
  for (; i < count; ++i) sum[i] = a[i] + b[i];
}

constexpr QuantizeRowKernels kKernels{softmax_row, norm_row, to_bytes, add_row};

}  // namespace
}  // namespace tpuconvert
