// Rows of attention over cached keys and values. Included after the vector header of an instruction set.
#pragma once

#include <cmath>

#include "float32/attention/cached_attention.h"
#include "float32/elementwise/functions.h"
#include "float32/rows/partial_sums.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

// Keys whose scores, and blocks of values whose sums, are computed at once: their chains of additions are independent,
// and eight registers of sums hide the latency of an addition.
constexpr int kAdjacent = kSixteenDoubles < 8 ? 8 / kSixteenDoubles : 1;

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

// Loads sixteen elements.
FLOAT_INLINE Sixteen load_sixteen(const float* from) {
  Sixteen result;
  for (int i = 0; i < kSixteenDoubles; ++i) result.part[i] = Double::load(from + i * Double::kLanes);
  return result;
}

// Dot products of a vector, padded with zeros to a multiple of 16, with `kCount` adjacent rows. Element i is added to sum
// i mod 16 of its row.
template <int kCount>
FLOAT_INLINE void dot_rows(const double* a, const float* rows, std::int64_t size, double* to) {
  Sixteen sum[kCount];
  unroll<kCount>(UNROLLED(n) { sum[n.value] = Sixteen::broadcast(0.0); });
  std::int64_t i = 0;
  for (; i + kPartial <= size; i += kPartial) {
    const Sixteen x = Sixteen::load(a + i);
    unroll<kCount>(
        UNROLLED(n) { sum[n.value] = fused_sixteen(x, load_sixteen(rows + n.value * size + i), sum[n.value]); });
  }
  if (i < size) {
    const Sixteen x = Sixteen::load(a + i);
    unroll<kCount>(UNROLLED(n) {
      sum[n.value] = fused_sixteen(x, Sixteen::load(rows + n.value * size + i, size - i), sum[n.value]);
    });
  }
  unroll<kCount>(UNROLLED(n) { to[n.value] = sum_in_registers(sum[n.value]); });
}

// Dot products of a padded vector with `count` rows.
FLOAT_INLINE void dot_all(const double* a, const float* rows, std::int64_t size, std::int64_t count, double* to) {
  std::int64_t j = 0;
  for (; j + kAdjacent <= count; j += kAdjacent) dot_rows<kAdjacent>(a, rows + j * size, size, to + j);
  for (; j < count; ++j) dot_rows<1>(a, rows + j * size, size, to + j);
}

// Multiplies scores by `scale` and adds a bias that may be absent. Returns the largest score; NaN if a score is NaN.
FLOAT_INLINE double finish_scores(double* scores, std::int64_t count, double scale, const float* bias) {
  Sixteen largest = Sixteen::broadcast(-0x1.fffffep127);  // rows of minus infinity give zeros
  Sixteen undefined = Sixteen::broadcast(0.0);
  std::int64_t j = 0;
  for (; j + kPartial <= count; j += kPartial) {
    Sixteen score = Sixteen::load(scores + j) * Sixteen::broadcast(scale);
    if (bias != nullptr) score = score + load_sixteen(bias + j);
    score.store(scores + j);
    for (int i = 0; i < kSixteenDoubles; ++i) {
      largest.part[i] = larger(largest.part[i], score.part[i]);
      undefined.part[i] = select(is_nan(score.part[i]), score.part[i], undefined.part[i]);
    }
  }
  alignas(64) double numbers[2][kPartial];
  largest.store(numbers[0]);
  undefined.store(numbers[1]);
  double most = numbers[0][0];
  bool has_nan = false;
  for (int i = 0; i < kPartial; ++i) {
    most = numbers[0][i] > most ? numbers[0][i] : most;
    has_nan = has_nan || numbers[1][i] != numbers[1][i];
  }
  for (; j < count; ++j) {
    double score = scores[j] * scale;
    if (bias != nullptr) score += static_cast<double>(bias[j]);
    scores[j] = score;
    most = score > most ? score : most;
    has_nan = has_nan || score != score;
  }
  return has_nan ? std::nan("") : most;
}

// Sums of `kCount` adjacent blocks of sixteen columns of the values, weighted by `powers`, times `factor`.
template <int kCount>
FLOAT_INLINE void weigh_blocks(const double* powers, const float* values, std::int64_t row, std::int64_t count,
                               double factor, float* to) {
  Sixteen sum[kCount];
  unroll<kCount>(UNROLLED(n) { sum[n.value] = Sixteen::broadcast(0.0); });
  for (std::int64_t j = 0; j < count; ++j) {
    const Sixteen power = Sixteen::broadcast(powers[j]);
    unroll<kCount>(UNROLLED(n) {
      sum[n.value] = fused_sixteen(power, load_sixteen(values + j * row + n.value * kPartial), sum[n.value]);
    });
  }
  unroll<kCount>(
      UNROLLED(n) { (sum[n.value] * Sixteen::broadcast(factor)).store(to + n.value * kPartial, kPartial); });
}

// Sums of the last columns, fewer than sixteen.
FLOAT_INLINE void weigh_rest(const double* powers, const float* values, std::int64_t row, std::int64_t count,
                             std::int64_t left, double factor, float* to) {
  Sixteen sum = Sixteen::broadcast(0.0);
  for (std::int64_t j = 0; j < count; ++j)
    sum = fused_sixteen(Sixteen::broadcast(powers[j]), Sixteen::load(values + j * row, left), sum);
  (sum * Sixteen::broadcast(factor)).store(to, left);
}

// Replaces scores by their exponentials, relative to the largest score, and returns their sum. The scores are padded with
// minus infinity to a multiple of 16.
FLOAT_INLINE double exponentials(double* powers, std::int64_t whole, double most, bool is_precise) {
  const Sixteen shift = Sixteen::broadcast(most);
  Sixteen sums = Sixteen::broadcast(0.0);
  for (std::int64_t j = 0; j < whole; j += kPartial) {
    Sixteen power = Sixteen::load(powers + j) - shift;
    if (is_precise) {
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
  return sum_of(sums);
}

void run_cached_attention(const CachedAttentionTask& task, std::int64_t first, std::int64_t last, std::int64_t length,
                          const float* query, const float* keys, const float* values, const float* mask, float* output,
                          double* scratch) {
  const std::int64_t group = task.heads / task.key_heads, total = length + task.rows;
  double* powers = scratch + cached_attention_query(task);
  for (std::int64_t index = first; index < last; ++index) {
    const std::int64_t row = index % task.rows, head = index / task.rows % task.heads;
    const std::int64_t batch = index / task.rows / task.heads;
    const std::int64_t cache = (batch * task.key_heads + head / group) * task.capacity;
    const float* q = query + batch * task.query.batch + head * task.query.head + row * task.query.row;
    const float* v = values + cache * task.value_size;
    const float* bias =
        task.has_mask ? mask + batch * task.mask.batch + head * task.mask.head + row * task.mask.row : nullptr;
    float* to = output + batch * task.output.batch + head * task.output.head + row * task.output.row;
    const std::int64_t count = task.is_causal ? length + row + 1 : total;
    for (std::int64_t i = 0; i < cached_attention_query(task); ++i) scratch[i] = i < task.size ? q[i] : 0.0;
    dot_all(scratch, keys + cache * task.size, task.size, count, powers);
    const double most = finish_scores(powers, count, task.scale, bias);
    const std::int64_t whole = (count + kPartial - 1) / kPartial * kPartial;
    for (std::int64_t j = count; j < whole; ++j) powers[j] = -HUGE_VAL;
    // The largest score contributes 1 to the sum, which is below 0.5 only for a row of minus infinities.
    const double sum = exponentials(powers, whole, most, task.is_precise);
    const double factor = most != most ? std::nan("") : sum < 0.5 ? 0.0 : 1.0 / sum;
    std::int64_t d = 0;
    for (; d + kAdjacent * kPartial <= task.value_size; d += kAdjacent * kPartial)
      weigh_blocks<kAdjacent>(powers, v + d, task.value_size, count, factor, to + d);
    for (; d + kPartial <= task.value_size; d += kPartial)
      weigh_blocks<1>(powers, v + d, task.value_size, count, factor, to + d);
    if (d < task.value_size) weigh_rest(powers, v + d, task.value_size, count, task.value_size - d, factor, to + d);
  }
}

}  // namespace
}  // namespace tpuconvert
