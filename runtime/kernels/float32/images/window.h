// Geometry of a window that moves over channels-last images, with strides in floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"
#include "int8/conv/conv.h"

namespace tpuconvert {

// Like ConvGeometry, but with strides in floats.
struct Window {
  int batch = 1, height = 1, width = 1;
  int out_height = 1, out_width = 1;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int pad_top = 0, pad_left = 0;
  std::ptrdiff_t in_pixel = 0, in_row = 0, in_image = 0;
  std::ptrdiff_t out_pixel = 0, out_row = 0, out_image = 0;

  int taps() const { return kernel_h * kernel_w; }
};

// Clamp of the result after the residual add: min(max(x, low), high). NaN propagates. If `low` is 0, every zero result
// is +0.
struct Limits {
  bool are_set = false;
  float low = 0, high = 0;  // low <= high; high is not +-0, low is not -0
};

// Converts a geometry with strides in bytes. Throws std::invalid_argument, naming `kind`, for invalid extents or
// strides.
Window window_of(const ConvGeometry& geometry, const char* kind);

// Bytes from the start of the first element to the end of the last one. `geometry` must have passed window_of.
std::size_t input_bytes(const ConvGeometry& geometry, const char* kind);
std::size_t output_bytes(const ConvGeometry& geometry, const char* kind);

void check(const Limits& limits, const char* kind);

}  // namespace tpuconvert
