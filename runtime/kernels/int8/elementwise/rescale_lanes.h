// Rescalings as kRescale computes them: in 32 bits after an exact product of 64.
#pragma once

#include <cstdint>
#include <vector>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

struct RescaleLanes {
  std::vector<std::int32_t> parameters[5];  // as RescaleParameter names them; each one number or one per channel
  bool has_second = false, has_again = false, is_wide = false;
};

// True if the vector implementation equals the epilogue without its clamp, for every value in low..high.
bool prepare_rescale(const EpilogueSpec& spec, std::int64_t low, std::int64_t high, RescaleLanes* lanes);

}  // namespace tpuconvert
