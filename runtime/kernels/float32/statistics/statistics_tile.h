// Loops of the statistics, compiled once per instruction set. Include with kBlock, the number of channels whose sums are
// in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "float32/statistics/statistics.h"

namespace tpuconvert {
namespace {

// The product of two float32 elements is exact in float64, so that a fused multiply-add gives the same result.
inline double add_square(double x, double sum) {
#ifdef __FMA__
  return __builtin_fma(x, x, sum);
#else
  return sum + x * x;
#endif
}

// Channels `first` to `first + Count - 1` of one outer index. Stride is 1, or 0 for a stride known at run time.
template <int Count, int Stride>
inline void summarize_block(const ChannelRows& rows, const float* x, std::int64_t to, const ChannelSummary& summary) {
  const std::int64_t stride = Stride == 1 ? 1 : rows.channel_stride;
  double sum[Count], square[Count];
  float highest[Count], lowest[Count];
  for (int j = 0; j < Count; ++j) {
    sum[j] = square[j] = 0;
    highest[j] = -__builtin_inff();
    lowest[j] = __builtin_inff();
  }
  for (std::int64_t position = 0; position < rows.positions; ++position, x += rows.position_stride) {
    for (int j = 0; j < Count; ++j) {
      const float value = x[j * stride];
      const double wide = value;
      sum[j] += wide;
      square[j] = add_square(wide, square[j]);
      highest[j] = value > highest[j] ? value : highest[j];
      lowest[j] = value < lowest[j] ? value : lowest[j];
    }
  }
  for (int j = 0; j < Count; ++j) {
    summary.sum[to + j] = sum[j];
    summary.square[to + j] = square[j];
    summary.highest[to + j] = highest[j];
    summary.lowest[to + j] = lowest[j];
  }
}

template <int Stride>
inline void summarize_with_stride(const ChannelRows& rows, const ChannelSummary& summary) {
  for (std::int64_t n = 0; n < rows.outer; ++n) {
    std::int64_t channel = 0;
    const auto run = [&](auto count) {
      constexpr int kCount = decltype(count)::value;
      for (; channel + kCount <= rows.channels; channel += kCount) {
        const float* x = rows.x + n * rows.outer_stride + channel * rows.channel_stride;
        summarize_block<kCount, Stride>(rows, x, n * rows.channels + channel, summary);
      }
    };
    run(std::integral_constant<int, kBlock>());
    run(std::integral_constant<int, 8>());
    run(std::integral_constant<int, 1>());
  }
}

void run_summarize(const ChannelRows& rows, const ChannelSummary& summary) {
  if (rows.channel_stride == 1)
    summarize_with_stride<1>(rows, summary);
  else
    summarize_with_stride<0>(rows, summary);
}

}  // namespace
}  // namespace tpuconvert
