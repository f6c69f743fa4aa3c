// Copies between memory orders: transposes, slices, and conversion of the caller's arrays.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/step.h"

namespace tpuconvert {

// Element [i, j, ...] goes from source + sum of index * source stride to target + sum of index * target stride.
struct CopySpec {
  Place source;
  Place target;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> source_strides;  // bytes
  std::vector<std::int64_t> target_strides;  // bytes
  int itemsize = 1;                          // 1, 2 or 4
  int flip = 0;                              // bits to invert in each byte; for one-byte elements
};

// Throws std::invalid_argument for unsupported strides or extents.
std::shared_ptr<Step> make_copy(const CopySpec& spec);

}  // namespace tpuconvert
