// Rows of attention over cached keys and values. Included after the vector header of an instruction set.
#pragma once

#include <cmath>
#include <utility>

#include "float32/attention/cached_attention.h"
#include "float32/elementwise/functions.h"
#include "float32/rows/partial_sums.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

// A tile of scores: queries that share the loads of keys, and adjacent keys. A tile of sums: queries that share the loads
// of values, and adjacent blocks of sixteen columns. Their chains of additions are independent, and eight or more
// registers of sums hide the latency of an addition; AVX2 has 16 registers.
constexpr int kTileQueries = kSixteenDoubles == 2 ? 4 : 2;

// Adjacent keys or blocks in a tile of `kQueries` queries.
template <int kQueries>
constexpr int adjacent() {
  constexpr int kRegisters = kSixteenDoubles == 2 ? 16 : 8;
  constexpr int kCount = kRegisters / (kQueries * kSixteenDoubles);
  return kCount < 1 ? 1 : kCount > 4 ? 4 : kCount;
}

static_assert(kTileQueries <= kAttentionQueries, "the scratch memory is too small");

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

// Sums of the elements of x[q * kKeys + k] by the tree of `sum_of`, into to[q * row + k].
template <int kQueries, int kKeys>
FLOAT_INLINE void store_sums(const Sixteen (&x)[kQueries * kKeys], double* to, std::int64_t row) {
  unroll<kQueries>(UNROLLED(q) {
    unroll<kKeys>(UNROLLED(k) { to[q.value * row + k.value] = sum_in_registers(x[q.value * kKeys + k.value]); });
  });
}

#ifdef __AVX512F__
// Both halves of a tree node of two registers at once, until each of eight results has one lane.
template <>
FLOAT_INLINE void store_sums<4, 2>(const Sixteen (&x)[8], double* to, std::int64_t row) {
  __m512d pairs[4], fours[2];
  for (int i = 0; i < 4; ++i) {
    // Queries 0 and 1 of key 0, queries 2 and 3 of key 0, and the same of key 1.
    const Sixteen &left = x[i % 2 * 4 + i / 2], &right = x[i % 2 * 4 + 2 + i / 2];
    const __m512d a = (left.part[0] + left.part[1]).v, b = (right.part[0] + right.part[1]).v;
    pairs[i] = _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x44), _mm512_shuffle_f64x2(a, b, 0xEE));
  }
  for (int i = 0; i < 2; ++i) {
    const __m512d a = pairs[2 * i], b = pairs[2 * i + 1];
    fours[i] = _mm512_add_pd(_mm512_shuffle_f64x2(a, b, 0x88), _mm512_shuffle_f64x2(a, b, 0xDD));
  }
  const __m512d sums = _mm512_add_pd(_mm512_unpacklo_pd(fours[0], fours[1]), _mm512_unpackhi_pd(fours[0], fours[1]));
  _mm_storeu_pd(to, _mm512_castpd512_pd128(sums));
  _mm_storeu_pd(to + row, _mm512_extractf64x2_pd(sums, 1));
  _mm_storeu_pd(to + 2 * row, _mm512_extractf64x2_pd(sums, 2));
  _mm_storeu_pd(to + 3 * row, _mm512_extractf64x2_pd(sums, 3));
}
#endif

// Queries with the same keys and values, and their scores. Both are in scratch memory.
struct QueryBlock {
  const double* queries;  // padded with zeros to a multiple of 16
  std::int64_t width;     // from one query to the next
  double* scores;
  std::int64_t row;  // from the scores of one query to those of the next
};

// Dot products of `kQueries` queries with `kKeys` adjacent rows. Element i is added to sum i mod 16.
template <int kQueries, int kKeys>
FLOAT_INLINE void dot_tile(const QueryBlock& block, const float* rows, std::int64_t size, double* to) {
  Sixteen sum[kQueries * kKeys];
  unroll<kQueries * kKeys>(UNROLLED(n) { sum[n.value] = Sixteen::broadcast(0.0); });
  const auto add = [&](std::int64_t i, const Sixteen(&y)[kKeys]) __attribute__((always_inline)) {
    unroll<kQueries>(UNROLLED(q) {
      const Sixteen x = Sixteen::load(block.queries + q.value * block.width + i);
      unroll<kKeys>(UNROLLED(k) {
        Sixteen& own = sum[q.value * kKeys + k.value];
        own = fused_sixteen(x, y[k.value], own);
      });
    });
  };
  std::int64_t i = 0;
  for (; i + kPartial <= size; i += kPartial) {
    Sixteen y[kKeys];
    unroll<kKeys>(UNROLLED(k) { y[k.value] = load_sixteen(rows + k.value * size + i); });
    add(i, y);
  }
  if (i < size) {
    Sixteen y[kKeys];
    unroll<kKeys>(UNROLLED(k) { y[k.value] = Sixteen::load(rows + k.value * size + i, size - i); });
    add(i, y);
  }
  store_sums<kQueries, kKeys>(sum, to, block.row);
}

// Scores of `kQueries` queries: dot products with `count` rows.
template <int kQueries>
FLOAT_INLINE void dot_all(const QueryBlock& block, const float* rows, std::int64_t size, std::int64_t count) {
  constexpr int kKeys = adjacent<kQueries>();
  std::int64_t j = 0;
  for (; j + kKeys <= count; j += kKeys) dot_tile<kQueries, kKeys>(block, rows + j * size, size, block.scores + j);
  for (; j < count; ++j) dot_tile<kQueries, 1>(block, rows + j * size, size, block.scores + j);
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

// What the sums of a query need besides its scores, which are powers then.
struct QuerySums {
  std::int64_t count;  // keys that it attends to
  double factor;       // of the sums
  float* to;
};

// Sums of `kBlocks` adjacent blocks of sixteen columns of the values from `first` on, weighted by the powers of
// `kQueries` queries. `columns` are left if there is one block.
template <int kQueries, int kBlocks, bool kIsWhole>
FLOAT_INLINE void weigh_tile(const QueryBlock& block, const QuerySums (&queries)[kTileQueries], const float* values,
                             std::int64_t row, std::int64_t first, std::int64_t columns) {
  Sixteen sum[kQueries * kBlocks];
  unroll<kQueries * kBlocks>(UNROLLED(n) { sum[n.value] = Sixteen::broadcast(0.0); });
  const auto load = [&](std::int64_t j, int n) __attribute__((always_inline)) {
    const float* from = values + j * row + first + n * kPartial;
    if constexpr (kIsWhole) return load_sixteen(from);
    return Sixteen::load(from, columns);
  };
  std::int64_t common = queries[0].count;
  for (int q = 1; q < kQueries; ++q) common = queries[q].count < common ? queries[q].count : common;
  for (std::int64_t j = 0; j < common; ++j) {
    Sixteen value[kBlocks];
    unroll<kBlocks>(UNROLLED(n) { value[n.value] = load(j, n.value); });
    unroll<kQueries>(UNROLLED(q) {
      const Sixteen power = Sixteen::broadcast(block.scores[q.value * block.row + j]);
      unroll<kBlocks>(UNROLLED(n) {
        Sixteen& own = sum[q.value * kBlocks + n.value];
        own = fused_sixteen(power, value[n.value], own);
      });
    });
  }
  // Later queries attend to more keys.
  unroll<kQueries>(UNROLLED(q) {
    for (std::int64_t j = common; j < queries[q.value].count; ++j) {
      const Sixteen power = Sixteen::broadcast(block.scores[q.value * block.row + j]);
      unroll<kBlocks>(UNROLLED(n) {
        Sixteen& own = sum[q.value * kBlocks + n.value];
        own = fused_sixteen(power, load(j, n.value), own);
      });
    }
    const Sixteen factor = Sixteen::broadcast(queries[q.value].factor);
    unroll<kBlocks>(UNROLLED(n) {
      (sum[q.value * kBlocks + n.value] * factor)
          .store(queries[q.value].to + first + n.value * kPartial, kIsWhole ? kPartial : columns);
    });
  });
}

// Results of `kQueries` queries.
template <int kQueries>
FLOAT_INLINE void weigh_all(const QueryBlock& block, const QuerySums (&queries)[kTileQueries], const float* values,
                            std::int64_t size) {
  constexpr int kBlocks = adjacent<kQueries>();
  std::int64_t d = 0;
  for (; d + kBlocks * kPartial <= size; d += kBlocks * kPartial)
    weigh_tile<kQueries, kBlocks, true>(block, queries, values, size, d, kPartial);
  for (; d + kPartial <= size; d += kPartial) weigh_tile<kQueries, 1, true>(block, queries, values, size, d, kPartial);
  if (d < size) weigh_tile<kQueries, 1, false>(block, queries, values, size, d, size - d);
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

// Computes `kQueries` rows from `index` on, which have the same keys and values.
template <int kQueries>
void attend(const CachedAttentionTask& task, std::int64_t index, std::int64_t length, const float* query,
            const float* keys, const float* values, const float* mask, float* output, double* scratch) {
  const std::int64_t width = cached_attention_query(task), total = length + task.rows;
  const QueryBlock block{scratch, width, scratch + kQueries * width, cached_attention_scores(task)};
  const std::int64_t batch = index / task.rows / task.heads;
  const std::int64_t group = task.heads / task.key_heads;
  const std::int64_t cache = (batch * task.key_heads + index / task.rows % task.heads / group) * task.capacity;
  QuerySums queries[kTileQueries];
  const float* bias[kQueries];
  std::int64_t most_keys = 0;
  for (int q = 0; q < kQueries; ++q) {
    const std::int64_t row = (index + q) % task.rows, head = (index + q) / task.rows % task.heads;
    const float* from = query + batch * task.query.batch + head * task.query.head + row * task.query.row;
    for (std::int64_t i = 0; i < width; ++i) scratch[q * width + i] = i < task.size ? from[i] : 0.0;
    bias[q] = task.has_mask ? mask + batch * task.mask.batch + head * task.mask.head + row * task.mask.row : nullptr;
    queries[q].to = output + batch * task.output.batch + head * task.output.head + row * task.output.row;
    queries[q].count = task.is_causal ? length + row + 1 : total;
    most_keys = queries[q].count > most_keys ? queries[q].count : most_keys;
  }
  dot_all<kQueries>(block, keys + cache * task.size, task.size, most_keys);
  for (int q = 0; q < kQueries; ++q) {
    double* powers = block.scores + q * block.row;
    const std::int64_t count = queries[q].count;
    const double most = finish_scores(powers, count, task.scale, bias[q]);
    const std::int64_t whole = (count + kPartial - 1) / kPartial * kPartial;
    for (std::int64_t j = count; j < whole; ++j) powers[j] = -HUGE_VAL;
    // The largest score contributes 1 to the sum, which is below 0.5 only for a row of minus infinities.
    const double sum = exponentials(powers, whole, most, task.is_precise);
    queries[q].factor = most != most ? std::nan("") : sum < 0.5 ? 0.0 : 1.0 / sum;
  }
  weigh_all<kQueries>(block, queries, values + cache * task.value_size, task.value_size);
}

using Attend = void (*)(const CachedAttentionTask&, std::int64_t, std::int64_t, const float*, const float*, const float*,
                        const float*, float*, double*);

// Table of the functions for 1, 2, ... queries.
template <typename Indices>
struct AttendTable;
template <int... kIndices>
struct AttendTable<std::integer_sequence<int, kIndices...>> {
  static constexpr Attend of_queries[] = {attend<kIndices + 1>...};
};

void run_cached_attention(const CachedAttentionTask& task, std::int64_t first, std::int64_t last, std::int64_t length,
                          const float* query, const float* keys, const float* values, const float* mask, float* output,
                          double* scratch) {
  using Table = AttendTable<std::make_integer_sequence<int, kTileQueries>>;
  // Rows of adjacent heads have the same keys and values.
  const std::int64_t shared = task.heads / task.key_heads * task.rows;
  for (std::int64_t index = first; index < last;) {
    const std::int64_t end = (index / shared + 1) * shared < last ? (index / shared + 1) * shared : last;
    const int count = end - index < kTileQueries ? static_cast<int>(end - index) : kTileQueries;
    Table::of_queries[count - 1](task, index, length, query, keys, values, mask, output, scratch);
    index += count;
  }
}

}  // namespace
}  // namespace tpuconvert
