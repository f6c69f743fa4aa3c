// Weights of a convolution, read from the file in the segment order of the register tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "int8/tile/tile.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

// Contents of one contiguous segment of a window.
enum class WindowLayout {
  kTaps,     // one tap of the input
  kRows,     // one kernel row in a copy of input rows
  kColumns,  // the whole window in a copy with interleaved rows (interleave_columns.h)
};

// Division of the bytes under a window into contiguous segments, which are accumulated one after another.
struct SegmentLayout {
  WindowLayout windows = WindowLayout::kTaps;
  int channels = 0;            // input channels of a panel, including those of merged groups
  int merged_groups = 1;
  std::size_t bytes = 0;       // bytes of a segment, a multiple of `chunk`; weights of padding bytes are zero
  std::size_t chunk = 4;       // bytes of a segment that one instruction multiplies, a multiple of 4
  int count = 0;
  int copies = 1;              // 8-bit summands per weight; segments are repeated for each summand
  TileUnit unit = TileUnit::kVnni;

  bool is_copied() const { return windows != WindowLayout::kTaps; }
  std::size_t depth() const { return bytes * static_cast<std::size_t>(count); }
};

// Number of 8-bit summands needed to represent every weight.
int weight_copies(const ConvInt8Spec& spec);

struct WeightSums {
  std::int64_t sum = 0;
  std::int64_t magnitude = 0;
};

// Weights of one accumulator: up to 16 channels in segment order, for every 8-bit summand.
class LaneRows {
 public:
  LaneRows(const ConvInt8Spec& spec, const SegmentLayout& layout);

  void read(int channel, int lane);
  void clear(int lane);

  // Writes [copy][depth / 4][lane][4] with a distance of `step_bytes` between steps of 4 bytes of depth.
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
