// Bins of a histogram without vector instructions for compression.
#pragma once

#include <cstdint>

#include "float32/statistics/statistics.h"

namespace tpuconvert {
namespace {

// Moves the integers that are not 0 to the front, and returns their number.
inline std::int64_t compress(std::int32_t* bins, std::int64_t n) {
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int32_t bin = bins[i];
    bins[count] = bin;
    count += bin != 0;
  }
  return count;
}

std::int64_t run_bins(const float* x, std::int64_t n, float scale, std::int32_t* to) {
  constexpr float kLast = static_cast<float>(kMagnitudeBins - 1);
  for (std::int64_t i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(x[i] * scale);
    to[i] = static_cast<std::int32_t>(magnitude < kLast ? magnitude : kLast);
  }
  return compress(to, n);
}

}  // namespace
}  // namespace tpuconvert
