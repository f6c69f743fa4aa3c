// Statistics of one tensor, collected over several runs.
#pragma once

#include <cstdint>
#include <vector>

#include "core/isa.h"
#include "core/program.h"
#include "float32/statistics/statistics.h"

namespace tpuconvert {

// Counts of magnitudes in bins of width 2^exponent. The exponent is the smallest one with which the largest magnitude has
// a bin; when it grows, bins are merged.
class MagnitudeHistogram {
 public:
  static constexpr int kNoData = -1000000;  // the exponent while there are only zeros

  // Adds finite elements of magnitude `largest` at most. Returns false, without a change, if the width of the bins is not
  // a normal number in binary32.
  bool add(const ChannelRows& rows, double largest, Isa isa);

  int exponent() const { return exponent_; }
  const std::vector<std::int64_t>& counts() const { return counts_; }  // empty without data

 private:
  int exponent_ = kNoData;
  std::vector<std::int64_t> counts_;
};

// Results of all runs since the last `clear`.
class TensorStatistics : public Observation {
 public:
  // `rows` is the layout, with its address left out.
  TensorStatistics(const Place& place, const ChannelRows& rows, bool has_histogram, Isa isa);

  Span span() const override { return span_; }

  // Returns false if an element is not finite, or as MagnitudeHistogram::add.
  bool add(const std::uint8_t* data) override;

  std::int64_t runs() const { return runs_; }
  std::int64_t outer() const { return rows_.outer; }
  std::int64_t channels() const { return rows_.channels; }
  float low() const { return low_; }
  float high() const { return high_; }
  const MagnitudeHistogram& histogram() const { return histogram_; }

  // Copies the summaries, [runs * outer, channels].
  void copy_to(const ChannelSummary& to) const;
  void clear();

 private:
  Span span_;
  ChannelRows rows_;
  bool has_histogram_;
  Isa isa_;
  std::int64_t runs_ = 0;
  float low_ = 0, high_ = 0;
  std::vector<double> sum_, square_;
  std::vector<float> highest_, lowest_;
  MagnitudeHistogram histogram_;
};

}  // namespace tpuconvert
