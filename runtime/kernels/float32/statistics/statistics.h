// Statistics of the values of a tensor for calibration: per channel, and a histogram of magnitudes.
//
// A sum adds the positions of a channel one after the other in float64, so that results are equal on every instruction
// set and equal to those of NumPy's `add.accumulate`.
#pragma once

#include <cstdint>

#include "core/isa.h"

namespace tpuconvert {

constexpr std::int64_t kMagnitudeBins = 8192;

// A view [outer, channels, positions]. Strides are in elements.
struct ChannelRows {
  const float* x = nullptr;
  std::int64_t outer = 0, channels = 0, positions = 0;
  std::int64_t outer_stride = 0, channel_stride = 0, position_stride = 0;
};

// Results [outer, channels]. `highest` and `lowest` ignore NaN; the sum is not finite if an element is not.
struct ChannelSummary {
  double* sum = nullptr;
  double* square = nullptr;  // sum of squares
  float* highest = nullptr;
  float* lowest = nullptr;
};

// Extremes of a summary. `is_finite` is whether all elements are.
struct SummaryTotal {
  float lowest;
  float highest;
  bool is_finite;
};

SummaryTotal total_of(const ChannelSummary& summary, std::int64_t count);

struct StatisticsKernels {
  void (*summarize)(const ChannelRows& rows, const ChannelSummary& summary);
  // Writes those of the integer parts of |x * scale| that are not 0, for n finite elements, at most kMagnitudeBins - 1.
  // Returns their number. `to` has space for n + 16 integers.
  std::int64_t (*bins)(const float* x, std::int64_t n, float scale, std::int32_t* to);
};

extern const StatisticsKernels kStatisticsScalar;
extern const StatisticsKernels kStatisticsAvx2;
extern const StatisticsKernels kStatisticsAvx512;

void summarize(const ChannelRows& rows, const ChannelSummary& summary, Isa isa);

// Adds the number of elements in every bin to `counts`, which has kMagnitudeBins elements.
void count_magnitudes(const ChannelRows& rows, float scale, std::int64_t* counts, Isa isa);

}  // namespace tpuconvert
