#include "float32/statistics/statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kChunk = 1024;  // elements whose bins are computed at once, in the L1 cache

const StatisticsKernels& kernels_for(Isa isa) {
  return TPU_SELECT(isa, kStatisticsScalar, kStatisticsAvx2, kStatisticsAvx512, kStatisticsScalar);
}

// Counts in several tables, so that successive increments of one bin do not wait for each other. Zeros, which are frequent
// after a ReLU, are counted without a table.
class Tables {
 public:
  Tables(float scale, const StatisticsKernels& kernels)
      : scale_(scale), kernels_(kernels), counts_(kTables * kMagnitudeBins) {}

  void add(const float* x, std::int64_t n) {
    std::int32_t bins[kChunk + 16];
    for (std::int64_t start = 0; start < n; start += kChunk) {
      const std::int64_t size = std::min(kChunk, n - start), count = kernels_.bins(x + start, size, scale_, bins);
      zeros_ += size - count;
      std::uint32_t* table = counts_.data();
      std::int64_t i = 0;
      for (; i + kTables <= count; i += kTables)
        for (int t = 0; t < kTables; ++t) ++table[t * kMagnitudeBins + bins[i + t]];
      for (; i < count; ++i) ++table[bins[i]];
    }
  }

  void add_to(std::int64_t* counts) const {
    counts[0] += zeros_;
    for (int t = 0; t < kTables; ++t)
      for (std::int64_t bin = 0; bin < kMagnitudeBins; ++bin) counts[bin] += counts_[t * kMagnitudeBins + bin];
  }

 private:
  static constexpr int kTables = 2;

  float scale_;
  const StatisticsKernels& kernels_;
  std::int64_t zeros_ = 0;
  std::vector<std::uint32_t> counts_;
};

}  // namespace

SummaryTotal total_of(const ChannelSummary& summary, std::int64_t count) {
  SummaryTotal total{__builtin_inff(), -__builtin_inff(), true};
  for (std::int64_t i = 0; i < count; ++i) {
    total.lowest = std::min(total.lowest, summary.lowest[i]);
    total.highest = std::max(total.highest, summary.highest[i]);
    total.is_finite = total.is_finite && std::isfinite(summary.sum[i]);
  }
  return total;
}

void summarize(const ChannelRows& rows, const ChannelSummary& summary, Isa isa) {
  kernels_for(isa).summarize(rows, summary);
}

void count_magnitudes(const ChannelRows& rows, float scale, std::int64_t* counts, Isa isa) {
  Tables tables(scale, kernels_for(isa));
  // The inner axis is that with the smaller stride; both axes are one run if there are no gaps.
  const bool is_channels_last = rows.channel_stride < rows.position_stride;
  const std::int64_t inner = is_channels_last ? rows.channels : rows.positions;
  const std::int64_t step = is_channels_last ? rows.channel_stride : rows.position_stride;
  const std::int64_t lines = is_channels_last ? rows.positions : rows.channels;
  const std::int64_t line_stride = is_channels_last ? rows.position_stride : rows.channel_stride;
  for (std::int64_t n = 0; n < rows.outer; ++n) {
    const float* x = rows.x + n * rows.outer_stride;
    if (step == 1 && line_stride == inner) {
      tables.add(x, lines * inner);
      continue;
    }
    for (std::int64_t line = 0; line < lines; ++line) {
      const float* from = x + line * line_stride;
      if (step == 1) {
        tables.add(from, inner);
      } else {
        for (std::int64_t i = 0; i < inner; ++i) tables.add(from + i * step, 1);
      }
    }
  }
  tables.add_to(counts);
}

}  // namespace tpuconvert
