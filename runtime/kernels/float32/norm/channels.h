// Per-channel operators on channels-last float32 images, computed in float64 and rounded once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/step.h"

namespace tpuconvert {

// y = (x - mean) * slope + shift, with one mean, slope and shift per channel. Pixels of x and y are contiguous.
struct BatchNormSpec {
  Place x, y;
  std::int64_t pixels = 1;
  std::vector<double> mean, slope, shift;
};

// Local response normalization:
// y = x / (bias + alpha / size * sum of squares over a window of `size` channels) ^ beta.
struct LrnSpec {
  Place x, y;
  std::int64_t pixels = 1;
  int channels = 1, size = 1;
  double alpha = 0, beta = 0, bias = 0;
};

// Both functions throw std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_batch_norm(const BatchNormSpec& spec);
std::shared_ptr<Step> make_lrn(const LrnSpec& spec);

}  // namespace tpuconvert
