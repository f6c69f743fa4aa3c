// Gather along one axis by constant indices: nearest-neighbour resizing, reflected padding, index_select.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/step.h"

namespace tpuconvert {

// Contiguous tensors x [outer, extent, inner bytes] and y [outer, indices, inner bytes]: y[i, k] = x[i, indices[k]].
struct GatherSpec {
  Place source;
  Place target;
  std::int64_t outer = 1, extent = 1, inner_bytes = 1;
  std::vector<std::int32_t> indices;
};

// Throws std::invalid_argument for an index outside of the axis.
std::shared_ptr<Step> make_gather(const GatherSpec& spec);

}  // namespace tpuconvert
