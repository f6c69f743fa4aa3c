// Pooling and resizing of float32 channels-last images.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "float32/images/window.h"

namespace tpuconvert {

struct PoolTask : Window {
  int channels = 1;
  bool is_max = true;
  const double* divisors = nullptr;  // average pooling: one per window, [out_height][out_width]
};

// Interpolation between two pixels of an axis: y = x[low] + (x[high] - x[low]) * weight.
struct Interpolation {
  std::int32_t low = 0, high = 0;
  float weight = 0;
};

struct ResizeTask {
  int out_height = 1, out_width = 1, channels = 1;
  std::ptrdiff_t in_pixel = 0, in_row = 0, in_image = 0;  // strides in floats
  const Interpolation* rows = nullptr;
  const Interpolation* columns = nullptr;
};

// The kernels of an instruction set. They compute rows first <= row < last of the result, counted over all images. The
// result is contiguous.
struct ImageKernels {
  void (*pool)(const PoolTask& task, std::int64_t first, std::int64_t last, const float* input, float* output);
  void (*resize)(const ResizeTask& task, std::int64_t first, std::int64_t last, const float* input, float* output);
};

extern const ImageKernels kImagesScalar;
extern const ImageKernels kImagesAvx2;
extern const ImageKernels kImagesAvx512;
extern const ImageKernels kImagesNeon;

struct PoolFloatSpec {
  Place input, output;
  ConvGeometry geometry;
  std::vector<double> divisors;  // average pooling: one per window; empty for max pooling
};

// `rows` and `columns` contain one interpolation per row and column of the result.
struct ResizeFloatSpec {
  Place input, output;
  ConvGeometry geometry;
  std::vector<Interpolation> rows, columns;
};

// Both functions throw std::invalid_argument for inconsistent parameters.
std::shared_ptr<Step> make_pool_float(const PoolFloatSpec& spec, Isa isa);
std::shared_ptr<Step> make_resize_float(const ResizeFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
