// Weights and parameters of a dense or grouped convolution, packed for the register tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "int8/tile/tile.h"
#include "int8/conv/weight_rows.h"
#include "int8/conv/conv.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert::avx512 {

// Adjacent output channels that one tile computes.
struct Panel {
  int first;                  // first output channel
  int columns;                // number of output channels
  int full;                   // accumulators of 16 channels
  bool half;                  // true if an accumulator of 8 channels follows
  TileEpilogue epilogue;              // the cheapest one that is proved for all channels
  int offset;                 // offset of the epilogues kTwoFactors and kKinked
  std::size_t input_offset;   // index of the first input channel
  std::size_t weights;        // offset in the packed weights, in bytes
  std::size_t weight_bytes;
  std::size_t parameters;     // index of the first LaneParameters

  int accumulators() const { return full + (half ? 1 : 0); }
  int lane_of(int column) const { return avx512::lane_of(column, accumulators()); }
  // bytes of packed weights per 4 inputs
  std::size_t step_bytes() const { return static_cast<std::size_t>(64 * full + (half ? 32 : 0)); }
};

struct PackedConv {
  SegmentLayout layout;
  std::vector<Panel> panels;
  AlignedBytes weights;
  AlignedBytes parameters;

  std::size_t lane_groups() const { return panels.back().parameters + static_cast<std::size_t>(panels.back().accumulators()); }
};

// Packs weights and parameters for a unit.
PackedConv pack(const ConvInt8Spec& spec, const Epilogue& epilogue, TileUnit unit);

}  // namespace tpuconvert::avx512
