// SSD detection output: box decoding and non-maximum suppression.
#pragma once

#include <cstdint>
#include <memory>

#include "core/step.h"

namespace tpuconvert {

// Encoding of a box relative to its prior; numbers as in the operator.
enum class BoxCode { kCorner = 1, kCenterSize = 2, kCornerSize = 3 };

// loc [images, priors, 1 or classes, 4], conf [images, priors, classes], prior [1 or 2, priors, 4], all dense; the second
// part of the priors are variances. Result [images * rows, 7]: image, class, score, box; what is not needed is 0.
struct DetectionSpec {
  Place loc, conf, prior, output;
  int images = 1, priors = 1, classes = 1;
  bool shares_location = true;
  bool has_variances = true;
  int background = 0;                 // a class that is left out; none where there is no such class
  int most_per_class = -1;            // of the best scores; below 0: all
  int most_per_image = -1;            // below 0: all
  BoxCode code = BoxCode::kCorner;
  float least_score = 0, most_overlap = 0, eta = 1;
};

// Throws std::invalid_argument for parameters that are not possible.
std::shared_ptr<Step> make_detection_float(const DetectionSpec& spec);

}  // namespace tpuconvert
