// The forms of an epilogue that compute in binary32, for a row of sums at a time.
#pragma once

#include <cstdint>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

// Whether rescale_float_rows() covers an epilogue: kFloat, and kHighSymmetric unless its scale is subnormal.
bool has_float_rows(const EpilogueSpec& spec);

// What apply() limits after adding the offset: nearest integers, halves away from zero, limited to INT32.
void rescale_float_rows(const Epilogue& epilogue, const std::int32_t* sums, int channel, int count, std::int32_t* rescaled);

}  // namespace tpuconvert
