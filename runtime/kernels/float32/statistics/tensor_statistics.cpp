#include "float32/statistics/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace tpuconvert {

namespace {

constexpr int kBits = 13;           // kMagnitudeBins is 2^kBits
constexpr int kMostExponent = 126;  // 2^exponent and 2^-exponent are normal numbers

// Bytes from the first to the last element. Throws std::invalid_argument for a layout that no tensor has.
std::size_t bytes_of(const ChannelRows& rows) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  std::int64_t last = 0;
  for (const auto& [extent, stride] : {std::pair(rows.outer, rows.outer_stride), std::pair(rows.channels, rows.channel_stride),
                                       std::pair(rows.positions, rows.position_stride)}) {
    if (extent < 1 || extent > most || stride < 0 || stride > most || (extent - 1) > (most - last) / std::max<std::int64_t>(stride, 1))
      throw std::invalid_argument("TensorStatistics: wrong extents or strides");
    last += (extent - 1) * stride;
  }
  return static_cast<std::size_t>(last + 1) * sizeof(float);
}

// Counts of bins that are 2^doublings times as wide.
std::vector<std::int64_t> merged(const std::vector<std::int64_t>& counts, int doublings) {
  const int shift = std::min(doublings, kBits);
  std::vector<std::int64_t> wide(counts.size());
  for (std::size_t bin = 0; bin < counts.size(); ++bin) wide[bin >> shift] += counts[bin];
  return wide;
}

}  // namespace

bool MagnitudeHistogram::add(const ChannelRows& rows, double largest, Isa isa) {
  int wanted = exponent_;
  if (largest > 0) {
    int exponent = 0;
    std::frexp(largest, &exponent);
    wanted = std::max(wanted, exponent - kBits);
  }
  if (wanted != kNoData && std::abs(wanted) > kMostExponent) return false;
  if (counts_.empty()) counts_.resize(kMagnitudeBins);
  if (wanted == kNoData) {
    counts_[0] += rows.outer * rows.channels * rows.positions;
    return true;
  }
  if (wanted > exponent_) {
    counts_ = merged(counts_, exponent_ == kNoData ? kBits : wanted - exponent_);
    exponent_ = wanted;
  }
  count_magnitudes(rows, std::ldexp(1.0f, -exponent_), counts_.data(), isa);
  return true;
}

TensorStatistics::TensorStatistics(const Place& place, const ChannelRows& rows, bool has_histogram, Isa isa)
    : span_(Span::reads(place, bytes_of(rows), sizeof(float))), rows_(rows), has_histogram_(has_histogram), isa_(isa) {}

bool TensorStatistics::add(const std::uint8_t* data) {
  ChannelRows rows = rows_;
  rows.x = reinterpret_cast<const float*>(data);
  const auto size = static_cast<std::size_t>(rows.outer * rows.channels), before = sum_.size();
  const auto resize = [&](std::size_t to) {
    sum_.resize(to);
    square_.resize(to);
    highest_.resize(to);
    lowest_.resize(to);
  };
  resize(before + size);
  const ChannelSummary summary{&sum_[before], &square_[before], &highest_[before], &lowest_[before]};
  summarize(rows, summary, isa_);
  const SummaryTotal total = total_of(summary, static_cast<std::int64_t>(size));
  const double largest = std::max(-static_cast<double>(total.lowest), static_cast<double>(total.highest));
  if (!total.is_finite || (has_histogram_ && !histogram_.add(rows, largest, isa_))) {
    resize(before);
    return false;
  }
  low_ = runs_ == 0 ? total.lowest : std::min(low_, total.lowest);
  high_ = runs_ == 0 ? total.highest : std::max(high_, total.highest);
  ++runs_;
  return true;
}

void TensorStatistics::copy_to(const ChannelSummary& to) const {
  std::copy(sum_.begin(), sum_.end(), to.sum);
  std::copy(square_.begin(), square_.end(), to.square);
  std::copy(highest_.begin(), highest_.end(), to.highest);
  std::copy(lowest_.begin(), lowest_.end(), to.lowest);
}

void TensorStatistics::clear() {
  runs_ = 0;
  sum_.clear();
  square_.clear();
  highest_.clear();
  lowest_.clear();
  histogram_ = {};
}

}  // namespace tpuconvert
