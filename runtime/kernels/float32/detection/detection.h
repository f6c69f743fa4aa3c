// SSD detection output: box decoding and non-maximum suppression.
#pragma once

#include <cstdint>
#include <memory>

#include "core/step.h"

namespace tpuconvert {

// Encoding of a box relative to its prior; the values are those of the operator's attribute.
enum class BoxCode { kCorner = 1, kCenterSize = 2, kCornerSize = 3 };

// All tensors are contiguous: loc [images, priors, 1 or classes, 4], conf [images, priors, classes], prior [1 or 2,
// priors, 4], where prior[1] contains the variances. The result is [images * rows, 7] with rows of (image, class,
// score, box); unused rows are 0.
struct DetectionSpec {
  Place loc, conf, prior, output;
  int images = 1, priors = 1, classes = 1;
  bool shares_location = true;
  bool has_variances = true;
  int background = 0;                 // class to skip; a value outside of 0..classes-1 skips none
  int most_per_class = -1;            // boxes with the best scores; a negative value means no limit
  int most_per_image = -1;            // a negative value means no limit
  BoxCode code = BoxCode::kCorner;
  float least_score = 0, most_overlap = 0, eta = 1;
};

// Throws std::invalid_argument for invalid parameters.
std::shared_ptr<Step> make_detection_float(const DetectionSpec& spec);

}  // namespace tpuconvert
