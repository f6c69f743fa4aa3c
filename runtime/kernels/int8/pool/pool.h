// Max and average pooling of channels-last bytes, and max pooling of INT16.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// Conversion of the sum of a window to an average. `bias` is subtracted from every stored byte before, and added to the
// result.
struct AverageSpec {
  bool divides = true;     // divide by the count of the window, ties away from zero
  std::int32_t scale = 1;  // otherwise sum * scale / 2^shift, rounded half up
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
  bool is_wide = false;  // elements are INT16; only for maxima
  AverageSpec average;
  // only if average.divides; their product is the count of a window
  std::vector<std::int32_t> row_counts, column_counts;
};

// Throws std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_pool(const PoolSpec& spec, Isa isa);

}  // namespace tpuconvert
