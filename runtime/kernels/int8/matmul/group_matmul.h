// Matmul of activations, quantized per row and group to INT8, with constant weights in integers of 4 or 8 bits.
#pragma once

#include <memory>

#include "float32/matmul/group_matmul.h"

namespace tpuconvert {

// The specification is that of the float matmul, except that `is_precise` has no effect: schema/ops defines every rounding.
// Throws std::invalid_argument for invalid extents and sizes.
std::shared_ptr<Step> make_group_matmul_int8(const GroupMatmulSpec& spec, Isa isa);

}  // namespace tpuconvert
