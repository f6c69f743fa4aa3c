// Regions of the result whose windows cross the same edges of the input, so that taps inside the padding can be skipped.
#pragma once

#include <cstddef>
#include <vector>

#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

struct Region {
  int y, x, height, width;            // results
  int tap_y, tap_x, taps_h, taps_w;   // of the kernel: a part that holds all taps which any of these results needs
};

// Cost model of the tiles of a panel, in cycles.
struct TileCosts {
  int rows;          // of the largest tile
  int accumulators;
  int tap_steps;     // of 4 bytes
};

// One region, or those that take fewest cycles. They cover all results; the last one has all taps.
std::vector<Region> regions_of(const ConvGeometry& geometry, const TileCosts& costs);

}  // namespace tpuconvert::avx512
