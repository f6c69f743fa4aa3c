// Order of the elements along an axis: sorting, the k largest or smallest, and the first extreme element.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "general/tensor.h"

namespace tpuconvert {

// Contiguous tensors: x [outer, extent, inner] of FLOAT32, INT8 or UINT8, results [outer, count, inner]. Equal elements
// have ascending indices, and NaN is larger than every number.
//
// With `is_extreme`, `indices` receives the index of the first largest element, or of the first smallest one if
// `descending` is false; that of the first NaN, if any. `count` is 1.
// Otherwise the first `count` elements of the sorted axis are stored, and their indices. Either result may be absent;
// values have the type of x.
struct OrderSpec {
  Place source;
  AnyType type = AnyType::kF32;
  std::optional<Place> values;
  std::optional<Place> indices;
  AnyType index_type = AnyType::kI32;  // or kF32
  std::int64_t outer = 1, extent = 1, inner = 1, count = 1;
  bool descending = false;
  bool is_extreme = false;
};

// Throws std::invalid_argument for invalid extents and types.
std::shared_ptr<Step> make_order(const OrderSpec& spec);

}  // namespace tpuconvert
