// Regions of the result whose windows cross the same edges of the input, so that taps inside the padding can be skipped.
#pragma once

#include <cstddef>
#include <vector>

#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

struct Region {
  int y, x, height, width;            // rectangle of results
  int tap_y, tap_x, taps_h, taps_w;   // rectangle of taps that includes all taps inside the input
};

// Cost model of the tiles of a panel, in cycles.
struct TileCosts {
  int rows;          // rows of the largest tile
  int accumulators;
  int tap_steps;     // steps of 4 bytes per tap
};

// Divides the results into regions if this reduces the estimated cycles; otherwise returns one region. The last region
// uses all taps.
std::vector<Region> regions_of(const ConvGeometry& geometry, const TileCosts& costs);

}  // namespace tpuconvert::avx512
