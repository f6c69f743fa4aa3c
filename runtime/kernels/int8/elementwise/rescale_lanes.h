// Conversion of requantization parameters to those of kRescale: an exact 64-bit product followed by 32-bit operations.
#pragma once

#include <cstdint>
#include <vector>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

struct RescaleLanes {
  // indexed by RescaleParameter; scalars, or vectors with one element per channel
  std::vector<std::int32_t> parameters[5];
  bool has_second = false, has_again = false, is_wide = false;
};

// True if kRescale equals the epilogue without its clamp for every value in low..high. Sets `lanes` in this case.
bool prepare_rescale(const EpilogueSpec& spec, std::int64_t low, std::int64_t high, RescaleLanes* lanes);

}  // namespace tpuconvert
