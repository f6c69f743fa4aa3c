// Parameters of the panels of a convolution for regions that leave taps out.
#pragma once

#include "core/aligned.h"
#include "int8/conv/tile_packing.h"
#include "int8/conv/windows.h"

namespace tpuconvert::avx512 {

// LaneParameters [region][lane group]. Biases take off what zero points add in every tap (see `pack`), so each region gets
// back what the taps would have added that it leaves out. With a single region, the packed parameters themselves.
AlignedBytes parameters_of_regions(PackedConv* packed, const Windows& windows);

}  // namespace tpuconvert::avx512
