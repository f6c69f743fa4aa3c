// Panel parameters of regions that skip taps.
#pragma once

#include "core/aligned.h"
#include "int8/conv/tile_packing.h"
#include "int8/conv/windows.h"

namespace tpuconvert::avx512 {

// Returns LaneParameters [region][lane group]. The packed biases compensate the zero points of all taps (see `pack`),
// so the bias of a region includes the contribution of the taps that the region skips. A single region uses the packed
// parameters.
AlignedBytes parameters_of_regions(PackedConv* packed, const Windows& windows);

}  // namespace tpuconvert::avx512
