// Largest element or average of every window of channels-last bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// How the sum of a window becomes an average; `bias` is subtracted from every stored byte first, and added to the result.
struct AverageSpec {
  bool divides = true;     // the quotient by the window's count, halves away from zero; otherwise
  std::int32_t scale = 1;  // sum * scale / 2^shift, half up
  int shift = 0;           // 0..63
  std::int32_t bias = 0;
};

struct PoolSpec {
  Place source;
  Place target;
  int images = 1, height = 1, width = 1, channels = 1;
  int out_height = 1, out_width = 1;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  int pad_top = 0, pad_left = 0;
  bool is_maximum = true;
  AverageSpec average;
  std::vector<std::int32_t> row_counts, column_counts;  // the count of a window is the product; for quotients
};

// Throws std::invalid_argument for extents that make no sense.
std::shared_ptr<Step> make_pool(const PoolSpec& spec, Isa isa);

enum class Reduction { kMean, kSum, kMaximum, kMinimum };

// Dense bytes [outer, count, inner] become [outer, inner].
struct ReduceSpec {
  Place source;
  Place target;
  std::int64_t outer = 1, count = 1, inner = 1;
  Reduction reduction = Reduction::kMean;
  std::int32_t bias = 0;  // as above; the results saturate
};

// Throws std::invalid_argument for extents that make no sense, or whose sums leave 32 bits.
std::shared_ptr<Step> make_reduce(const ReduceSpec& spec, Isa isa);

// softmax_int over rows of adjacent bytes; `zero` in terms of stored bytes.
struct SoftmaxIntSpec {
  Place source;
  Place target;
  std::int64_t rows = 1;
  int length = 1;
  std::vector<float> table;  // 256
  float scale = 1.0f;
  std::int32_t zero = 0;
};

std::shared_ptr<Step> make_softmax_int(const SoftmaxIntSpec& spec, Isa isa);

}  // namespace tpuconvert
