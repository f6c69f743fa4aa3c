// Writes updates to indices that are computed at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "general/tensor.h"

namespace tpuconvert {

// The result is a copy of `data`, in which update k, a contiguous block of `block` elements, replaces the block at
// `offsets[k]` plus the sum over j of `index_steps[j]` times index (k, j), in elements; or is combined with it. Updates
// are applied in ascending order. Negative indices count from the end; a run with an index outside of its extent throws
// std::out_of_range. All tensors are contiguous.
struct ScatterSpec {
  Place data, indices, updates, target;
  AnyType type = AnyType::kF32;
  std::int64_t elements = 1;               // of data and target
  std::int64_t count = 1, block = 1;       // updates
  std::vector<std::int64_t> index_steps;   // one per column of the indices [count, columns]
  std::vector<std::int64_t> extents;       // one per column
  std::vector<std::int64_t> axes;          // the axis of each column, for the message
  std::vector<std::int64_t> offsets;       // one per update; empty for zeros
  std::string reduction = "none";          // none, add, mul, max, min
  std::string name;                        // of the operator, for the message
};

// Throws std::invalid_argument for invalid extents, and for steps and offsets that leave the data.
std::shared_ptr<Step> make_scatter(const ScatterSpec& spec);

}  // namespace tpuconvert
