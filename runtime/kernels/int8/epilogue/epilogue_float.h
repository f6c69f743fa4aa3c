// Requantizations with float32 arithmetic, for a row of accumulators at a time.
#pragma once

#include <cstdint>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

// True if rescale_float_rows() supports an epilogue: kFloat, and kHighSymmetric unless its scale is subnormal.
bool has_float_rows(const EpilogueSpec& spec);

// Requantizes a row without offset and clamp. Rounds to nearest, ties away from zero, and saturates to INT32.
void rescale_float_rows(const Epilogue& epilogue, const std::int32_t* sums, int channel, int count, std::int32_t* rescaled);

}  // namespace tpuconvert
