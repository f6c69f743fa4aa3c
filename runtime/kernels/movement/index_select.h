// Gather along one axis by indices computed at run time: embeddings, 16-bit lookup tables.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/step.h"

namespace tpuconvert {

// Contiguous tensors x [outer, extent, inner bytes] and y [outer, count, inner bytes]: y[i, k] = x[i, indices[k]],
// where `indices` are `count` 32-bit integers. A run with an index outside of the axis throws std::out_of_range before
// it writes anything; the message ends with `bounds` ("0..6, axis 0 of [7]").
struct IndexSelectSpec {
  Place source;
  Place indices;
  Place target;
  std::int64_t outer = 1, extent = 1, inner_bytes = 1, count = 1;
  std::string bounds;
};

// Throws std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_index_select(const IndexSelectSpec& spec);

}  // namespace tpuconvert
