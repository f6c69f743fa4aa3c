// Weights and parameters of a dense or grouped convolution in the order in which the register tiles read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "int8/avx512_tile.h"
#include "int8/conv_int8.h"
#include "int8/epilogue.h"

namespace tpuconvert::avx512 {

// Neighbouring output channels that one tile computes.
struct Panel {
  int first;                  // output channel
  int columns;                // channels
  int full;                   // accumulators of 16 channels
  bool half;                  // and one of 8
  TileForm form;              // best one that is proved for all channels
  int offset;                 // of the epilogue, for the forms that need it
  std::size_t input_offset;   // first input channel
  std::size_t weights;        // where they begin, in bytes
  std::size_t weight_bytes;
  std::size_t parameters;     // index of the first LaneParameters

  int accumulators() const { return full + (half ? 1 : 0); }
};

// How the bytes under a window are cut into contiguous segments, whose products are summed one after the other.
struct SegmentLayout {
  bool is_padded_row = false;  // a segment is a row of the kernel in a copy of the input; otherwise it is one tap
  int channels = 0;            // input channels of a panel: those of as many groups as share it
  int merged_groups = 1;
  std::size_t bytes = 0;       // of a segment, a multiple of 4; weights behind its end are zero
  int count = 0;
  int copies = 1;              // weights of more than 8 bits are sums of several; the segments are repeated for each

  std::size_t depth() const { return bytes * static_cast<std::size_t>(count); }
};

struct PackedConv {
  SegmentLayout layout;
  std::vector<Panel> panels;
  AlignedBytes weights;
  AlignedBytes parameters;

  const LaneParameters* lanes(const Panel& panel) const { return parameters.as<LaneParameters>() + panel.parameters; }
};

PackedConv pack(const ConvInt8Spec& spec, const Epilogue& epilogue);

// How many summands of -128..127 the largest weight needs.
int weight_copies(const ConvInt8Spec& spec);

}  // namespace tpuconvert::avx512
