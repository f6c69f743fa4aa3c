// Pooling over regions of interest that are computed at run time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "core/step.h"

namespace tpuconvert {

// Contiguous FLOAT32 tensors x [N, C, H, W] and y [R, C, out_height, out_width]. Every region is divided into cells.
// - With `images` (INT32 [R]), rois are [R, 4] as (x1, y1, x2, y2), and a cell is the mean or the maximum of bilinear
//   samples, as in ONNX RoiAlign.
// - Without, rois are [R, 5] with the image in front, corners are rounded to pixels, and a cell is its largest pixel.
// A run with an image outside of the batch throws std::out_of_range before it writes anything.
struct RegionSpec {
  Place source, rois, target;
  std::optional<Place> images;
  std::int64_t batch = 1, channels = 1, height = 1, width = 1, regions = 1, out_height = 1, out_width = 1;
  std::int64_t sampling_ratio = 0;
  double scale = 1;
  bool is_maximum = false;
  bool half_pixel = true;
};

// Throws std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_regions(const RegionSpec& spec);

}  // namespace tpuconvert
