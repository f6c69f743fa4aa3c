// Integer pooling of images and volumes for the cases that the fast kernel declines: INT16 averages, positions of maxima,
// three dimensions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "general/tensor.h"

namespace tpuconvert {

// Axes are (depth, height, width); an image has depth 1. Windows contain only elements inside of the volume, at least one.
struct AnyPoolSpec {
  AnyTensor source;                 // [N, C, D, H, W] of integers
  AnyTensor result;                 // [N, C, OD, OH, OW], the same type
  std::optional<AnyTensor> places;  // INT32: (d * H + h) * W + w of the first maximum
  std::int64_t batch = 1, channels = 1;
  std::array<std::int64_t, 3> extents{1, 1, 1}, out_extents{1, 1, 1}, kernel{1, 1, 1}, strides{1, 1, 1}, pads{0, 0, 0};
  bool is_maximum = false;
  // An average: the sum divided by the number of elements, ties away from zero; or sum * scale >> shift, ties up.
  bool divides = true;
  std::int64_t scale = 1;
  int shift = 0;
  std::int64_t low = 0, high = 0;  // range of the type
};

// Throws std::invalid_argument for invalid extents and types.
std::shared_ptr<Step> make_any_pool(const AnyPoolSpec& spec);

}  // namespace tpuconvert
