// Float32 matmul of two matrices that are computed at run time, repeated for each entry of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// Strides and offsets are in bytes and multiples of four. Columns of the result are adjacent.
struct MatmulFloatSpec {
  Place left, right, output;
  std::int64_t rows = 1, columns = 1, depth = 1;
  std::int64_t left_row = 0, left_depth = 0, right_depth = 0, right_column = 0, out_row = 0;
  std::vector<std::int64_t> left_starts, right_starts, out_starts;  // one per entry of the batch
  std::vector<float> bias;                                          // one per column, or empty
  bool is_precise = false;                                          // accumulates in float64 and rounds once
};

// Throws std::invalid_argument for invalid extents and strides.
std::shared_ptr<Step> make_matmul_float(const MatmulFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
