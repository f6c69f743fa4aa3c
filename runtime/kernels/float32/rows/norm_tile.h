// Layer, group and root-mean-square normalization along rows. Included after the vector header of an instruction set.
#pragma once

#include <cmath>

#include "float32/rows/partial_sums.h"
#include "float32/rows/rows.h"

namespace tpuconvert {
namespace {

void run_normalize(const NormTask& task, std::int64_t first, std::int64_t last, const float* x, const float* scale,
                   const float* bias, float* y) {
  const double count = static_cast<double>(task.count);
  for (std::int64_t row = first; row < last; ++row) {
    const float* from = x + row * task.count;
    float* to = y + row * task.count;
    double mean = 0;
    if (task.is_centered) {
      Sixteen sums = Sixteen::broadcast(0.0);
      for (std::int64_t i = 0; i < task.count; i += kPartial) sums = sums + Sixteen::load(from + i, task.count - i);
      mean = sum_of(sums) / count;
    }
    const Sixteen center = Sixteen::broadcast(mean);
    Sixteen squares = Sixteen::broadcast(0.0);
    std::int64_t i = 0;
    for (; i + kPartial <= task.count; i += kPartial) {
      const Sixteen centered = Sixteen::load(from + i, kPartial) - center;
      squares = squares + centered * centered;
    }
    if (i < task.count) {
      // Lanes after the last element must not contribute to the sum.
      alignas(64) double rest[kPartial];
      const Sixteen centered = Sixteen::load(from + i, task.count - i) - center;
      (centered * centered).store(rest);
      for (std::int64_t k = task.count - i; k < kPartial; ++k) rest[k] = 0;
      squares = squares + Sixteen::load(rest);
    }
    const double inverse = 1 / std::sqrt(sum_of(squares) / count + task.epsilon);
    const Sixteen factor = Sixteen::broadcast(inverse);
    const std::int64_t channel = row % task.groups * (task.count / task.block);
    for (std::int64_t start = 0; start < task.count; start += task.block == 1 ? task.count : task.block) {
      const std::int64_t length = task.block == 1 ? task.count : task.block;
      const std::int64_t place = channel + (task.block == 1 ? 0 : start / task.block);
      for (std::int64_t j = 0; j < length; j += kPartial) {
        const std::int64_t n = length - j;
        Sixteen value = (Sixteen::load(from + start + j, n) - center) * factor;
        if (scale != nullptr)
          value = value * (task.block == 1 ? Sixteen::load(scale + place + j, n)
                                           : Sixteen::broadcast(static_cast<double>(scale[place])));
        if (bias != nullptr)
          value = value + (task.block == 1 ? Sixteen::load(bias + place + j, n)
                                           : Sixteen::broadcast(static_cast<double>(bias[place])));
        value.store(to + start + j, n);
      }
    }
  }
}

}  // namespace
}  // namespace tpuconvert
