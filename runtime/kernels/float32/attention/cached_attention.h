// Attention with caches of keys and values: appends new rows to the caches, and attends to the rows in them.
//
// The caches have a capacity; the number of rows that are valid before the run is an operand. A row of the result depends
// on its query, on the keys and values that it may attend to, and on nothing else: all sums follow the positions of the
// keys. Results are therefore equal for every division of a prompt into runs, and for every capacity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// Distances in floats; the elements of a row are adjacent.
struct RowStrides {
  std::ptrdiff_t batch = 0, head = 0, row = 0;
};

struct CachedAttentionTask {
  std::int64_t batch = 1, heads = 1, key_heads = 1, rows = 1, size = 1, value_size = 1, capacity = 1;
  double scale = 1;
  bool is_causal = false;   // a query does not attend to keys after its position
  bool is_precise = false;  // exponentials by the C++ standard library
  RowStrides query, mask, output;
  bool has_mask = false;
};

// Largest number of queries that a kernel computes at once.
constexpr std::int64_t kAttentionQueries = 4;

// Doubles of scratch memory for a query: its size, rounded up to a multiple of 16.
inline std::int64_t cached_attention_query(const CachedAttentionTask& task) { return (task.size + 15) / 16 * 16; }

// Doubles of scratch memory for the scores of all keys of a query.
inline std::int64_t cached_attention_scores(const CachedAttentionTask& task) { return (task.capacity + 15) / 16 * 16 + 16; }

// Doubles of scratch memory that a worker needs: queries and their scores.
inline std::int64_t cached_attention_scratch(const CachedAttentionTask& task) {
  return kAttentionQueries * (cached_attention_query(task) + cached_attention_scores(task));
}

struct CachedAttentionKernels {
  // Computes rows first <= row < last of [batch, heads, rows]; `length` rows of the caches precede the first query.
  void (*run)(const CachedAttentionTask& task, std::int64_t first, std::int64_t last, std::int64_t length,
              const float* query, const float* keys, const float* values, const float* mask, float* output,
              double* scratch);
};

extern const CachedAttentionKernels kCachedAttentionScalar;
extern const CachedAttentionKernels kCachedAttentionAvx2;
extern const CachedAttentionKernels kCachedAttentionAvx512;
extern const CachedAttentionKernels kCachedAttentionNeon;

// The caches are contiguous: [batch, key_heads, capacity, size] and [batch, key_heads, capacity, value_size].
struct CachedAttentionSpec : CachedAttentionTask {
  Place queries, new_keys, new_values, keys, values, length, result;
  std::optional<Place> masks;
  RowStrides new_key, new_value;
};

// Throws std::invalid_argument for invalid extents and strides. A run throws std::out_of_range if the caches are full.
std::shared_ptr<Step> make_cached_attention(const CachedAttentionSpec& spec, Isa isa);

}  // namespace tpuconvert
