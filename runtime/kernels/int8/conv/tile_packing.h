// Weights and parameters of a dense or grouped convolution in the order in which the register tiles read them.
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
  int first;                  // output channel
  int columns;                // channels
  int full;                   // accumulators of 16 channels
  bool half;                  // and one of 8
  TileEpilogue epilogue;              // best one that is proved for all channels
  int offset;                 // of the epilogue, for the forms that need it
  std::size_t input_offset;   // first input channel
  std::size_t weights;        // where they begin, in bytes
  std::size_t weight_bytes;
  std::size_t parameters;     // index of the first LaneParameters

  int accumulators() const { return full + (half ? 1 : 0); }
  int lane_of(int column) const { return avx512::lane_of(column, accumulators()); }
  std::size_t step_bytes() const { return static_cast<std::size_t>(64 * full + (half ? 32 : 0)); }  // of 4 inputs
};

struct PackedConv {
  SegmentLayout layout;
  std::vector<Panel> panels;
  AlignedBytes weights;
  AlignedBytes parameters;

  std::size_t lane_groups() const { return panels.back().parameters + static_cast<std::size_t>(panels.back().accumulators()); }
};

PackedConv pack(const ConvInt8Spec& spec, const Epilogue& epilogue);

}  // namespace tpuconvert::avx512
