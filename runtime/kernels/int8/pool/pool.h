// Max and average pooling of channels-last bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// Average of the sum of a window; `bias` is subtracted from every stored byte first, and added to the result.
struct AverageSpec {
  bool divides = true;     // the quotient by the window's count, ties away from zero; otherwise
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

}  // namespace tpuconvert
