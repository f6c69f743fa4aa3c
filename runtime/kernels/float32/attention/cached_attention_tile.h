// Rows of attention over cached keys and values. Included after the vector header of an instruction set.
#pragma once

#include <cmath>

#include "float32/attention/cached_attention.h"
#include "float32/elementwise/functions.h"
#include "float32/rows/partial_sums.h"

namespace tpuconvert {
namespace {

// The tree of `sum_of`, in registers as long as both halves fill registers.
FLOAT_INLINE double sum_in_registers(Sixteen x) {
  for (int half = kSixteenDoubles / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) x.part[i] = x.part[i] + x.part[i + half];
  alignas(64) double lanes[Double::kLanes];
  x.part[0].store(lanes);
  for (int half = Double::kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

FLOAT_INLINE Sixteen fused_sixteen(const Sixteen& a, const Sixteen& b, const Sixteen& c) {
  Sixteen result;
  for (int i = 0; i < kSixteenDoubles; ++i) result.part[i] = fused(a.part[i], b.part[i], c.part[i]);
  return result;
}

// Element i of the vectors is added to sum i mod 16.
FLOAT_INLINE double dot(const float* a, const float* b, std::int64_t size) {
  Sixteen sum = Sixteen::broadcast(0.0);
  for (std::int64_t i = 0; i < size; i += kPartial)
    sum = fused_sixteen(Sixteen::load(a + i, size - i), Sixteen::load(b + i, size - i), sum);
  return sum_in_registers(sum);
}

void run_cached_attention(const CachedAttentionTask& task, std::int64_t first, std::int64_t last, std::int64_t length,
                          const float* query, const float* keys, const float* values, const float* mask, float* output,
                          double* powers) {
  const std::int64_t group = task.heads / task.key_heads, total = length + task.rows;
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t row = index % task.rows, head = index / task.rows % task.heads;
    const std::int64_t batch = index / task.rows / task.heads;
    const std::int64_t cache = (batch * task.key_heads + head / group) * task.capacity;
    const float* q = query + batch * task.query.batch + head * task.query.head + row * task.query.row;
    const float* k = keys + cache * task.size;
    const float* v = values + cache * task.value_size;
    const float* bias =
        task.has_mask ? mask + batch * task.mask.batch + head * task.mask.head + row * task.mask.row : nullptr;
    float* to = output + batch * task.output.batch + head * task.output.head + row * task.output.row;
    const std::int64_t count = task.is_causal ? length + row + 1 : total;
    double most = -0x1.fffffep127;  // rows of minus infinity give zeros
    bool is_nan = false;
    for (std::int64_t j = 0; j < count; ++j) {
      double score = dot(q, k + j * task.size, task.size) * task.scale;
      if (bias != nullptr) score += static_cast<double>(bias[j]);
      powers[j] = score;
      most = score > most ? score : most;
      is_nan = is_nan || score != score;
    }
    const std::int64_t whole = (count + kPartial - 1) / kPartial * kPartial;
    for (std::int64_t j = count; j < whole; ++j) powers[j] = -HUGE_VAL;
    const Sixteen shift = Sixteen::broadcast(most);
    Sixteen sums = Sixteen::broadcast(0.0);
    for (std::int64_t j = 0; j < whole; j += kPartial) {
      Sixteen power = Sixteen::load(powers + j) - shift;
      if (task.is_precise) {
        alignas(64) double numbers[kPartial];
        power.store(numbers);
        for (double& number : numbers) number = std::exp(number);
        power = Sixteen::load(numbers);
      } else {
        for (Double& part : power.part) part = exponential(part);
      }
      power.store(powers + j);
      sums = sums + power;
    }
    // The largest score contributes 1 to the sum, which is below 0.5 only for a row of minus infinities.
    const double sum = sum_of(sums);
    const double factor = is_nan ? std::nan("") : sum < 0.5 ? 0.0 : 1.0 / sum;
    for (std::int64_t d = 0; d < task.value_size; d += kPartial) {
      const std::int64_t left = task.value_size - d;
      Sixteen total_of_values = Sixteen::broadcast(0.0);
      for (std::int64_t j = 0; j < count; ++j)
        total_of_values =
            fused_sixteen(Sixteen::broadcast(powers[j]), Sixteen::load(v + j * task.value_size + d, left), total_of_values);
      (total_of_values * Sixteen::broadcast(factor)).store(to + d, left);
    }
  }
}

}  // namespace
}  // namespace tpuconvert
