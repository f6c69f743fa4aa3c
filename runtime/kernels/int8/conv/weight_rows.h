// Weights of a convolution as they are read from a file, on their way into the order of the register tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "int8/tile/tile.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

// Contents of a segment of a window.
enum class WindowLayout {
  kTaps,     // a tap in the input
  kRows,     // a row of the kernel in a copy of input rows
  kColumns,  // all of the window in a copy whose columns have the rows side by side
};

// Split of the bytes under a window into contiguous segments, which are accumulated in turn.
struct SegmentLayout {
  WindowLayout windows = WindowLayout::kTaps;
  int channels = 0;            // input channels of a panel: those of as many groups as share it
  int merged_groups = 1;
  std::size_t bytes = 0;       // of a segment, a multiple of 4; weights after its end are zero
  int count = 0;
  int copies = 1;              // wider weights are sums of several 8-bit ones; the segments are repeated for each

  bool is_copied() const { return windows != WindowLayout::kTaps; }
  std::size_t depth() const { return bytes * static_cast<std::size_t>(count); }
};

// Number of 8-bit summands that the largest weight needs.
int weight_copies(const ConvInt8Spec& spec);

struct WeightSums {
  std::int64_t sum = 0;
  std::int64_t magnitude = 0;
};

// The rows of one accumulator: up to 16 channels in the order of the segments, in every copy.
class LaneRows {
 public:
  LaneRows(const ConvInt8Spec& spec, const SegmentLayout& layout);

  void read(int channel, int lane);
  void clear(int lane);

  // [copy][depth / 4][lane][4], one step every `step_bytes`.
  void interleave(int lanes, std::int8_t* to, std::size_t step_bytes) const;

  const WeightSums& sums(int lane) const { return sums_[lane]; }

 private:
  std::int8_t* row(int copy, int lane) {
    return rows_.data() + (static_cast<std::size_t>(copy) * kLanes + static_cast<std::size_t>(lane)) * layout_.depth();
  }

  const ConvInt8Spec& spec_;
  const SegmentLayout& layout_;
  std::vector<std::int8_t> rows_;
  std::vector<std::int16_t> wide_;
  WeightSums sums_[kLanes];
};

}  // namespace tpuconvert::avx512
