// Softmax along rows: y = exp(x - max(x)) / sum(exp(x - max(x))). Included after the vector header of an instruction set.
#pragma once

#include "float32/elementwise/functions.h"
#include "float32/rows/partial_sums.h"
#include "float32/rows/rows.h"

namespace tpuconvert {
namespace {

// Largest element of a row. If an element is NaN, the result is arbitrary, and the NaN makes the sum NaN.
FLOAT_INLINE float largest_of(const float* x, std::int64_t count) {
  Float most = Float::broadcast(x[0]);
  std::int64_t i = 0;
  for (; i + Float::kLanes <= count; i += Float::kLanes) most = larger(Float::load(x + i), most);
  alignas(64) float lanes[Float::kLanes];
  most.store(lanes);
  float result = lanes[0];
  for (int lane = 1; lane < Float::kLanes; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

void run_softmax(const SoftmaxTask& task, std::int64_t first, std::int64_t last, const float* x, float* y,
                 double* powers) {
  constexpr float kLowest = -0x1.fffffep127f;
  const float lowest = -__builtin_inff();
  for (std::int64_t row = first; row < last; ++row) {
    const float* from = x + row * task.count;
    float* to = y + row * task.count;
    const float found = largest_of(from, task.count);
    const float most = task.is_guarded && found < kLowest ? kLowest : found;
    const Sixteen shift = Sixteen::broadcast(static_cast<double>(most));
    Sixteen sums = Sixteen::broadcast(0.0);
    if (task.is_precise) precise_powers(from, most, task.count, powers);
    for (std::int64_t i = 0; i < task.count; i += kPartial) {
      // Lanes after the last element are -infinity. Their exponentials are too small to change the sum.
      Sixteen power;
      if (task.is_precise) {
        power = Sixteen::load(powers + i);
      } else {
        power = Sixteen::load(from + i, task.count - i, lowest) - shift;
        for (Double& part : power.part) part = exponential(part);
        power.store(powers + i);
      }
      sums = sums + power;
    }
    // The largest element contributes 1 to the sum. The sum is below 0.5 only for a row of -infinity, whose
    // exponentials are 0 or, because `exponential` clamps its operand, below 2e-87.
    const double sum = sum_of(sums);
    const Sixteen factor = Sixteen::broadcast(task.is_guarded && sum < 0.5 ? 0.0 : 1.0 / sum);
    for (std::int64_t i = 0; i < task.count; i += kPartial)
      (Sixteen::load(powers + i) * factor).store(to + i, task.count - i);
  }
}

}  // namespace
}  // namespace tpuconvert
