#include "int8/conv/geometry_checks.h"

#include <stdexcept>
#include <string>

namespace tpuconvert {

namespace {

// Adds count * stride to total. Throws std::invalid_argument if the result exceeds 64 bits.
void add_extent(const char* kernel, std::int64_t count, std::int64_t stride, std::int64_t* total) {
  std::int64_t product = 0;
  require_of(kernel, !__builtin_mul_overflow(count, stride, &product) && !__builtin_add_overflow(*total, product, total),
             "strides and extents exceed 64 bits");
}

// Kernels compute coordinates in 32 bits.
void check_axis(const char* kernel, int out, int window, int stride, int dilation, int pad) {
  const std::int64_t last = (std::int64_t{out} - 1) * stride + (std::int64_t{window} - 1) * dilation + pad;
  require_of(kernel, last <= kLargestIndex / 2, "a window lies too far from its input");
}

}  // namespace

void require_of(const char* kernel, bool is_true, const char* message) {
  if (!is_true) throw std::invalid_argument(std::string(kernel) + ": " + message);
}

std::int64_t tensor_extent(const char* kernel, const std::array<std::int64_t, 3>& sizes,
                           const std::array<std::ptrdiff_t, 3>& strides, std::int64_t pixel_bytes) {
  std::int64_t total = pixel_bytes;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    require_of(kernel, strides[axis] >= 0, "strides must not be negative");
    add_extent(kernel, sizes[axis] - 1, strides[axis], &total);
  }
  return total;
}

std::int64_t input_extent(const char* kernel, const ConvGeometry& g, int bytes) {
  return tensor_extent(kernel, {g.batch, g.height, g.width}, {g.in_image, g.in_row, g.in_pixel},
                       std::int64_t{g.in_channels} * bytes);
}

std::int64_t output_extent(const char* kernel, const ConvGeometry& g, int bytes) {
  return tensor_extent(kernel, {g.batch, g.out_height, g.out_width}, {g.out_image, g.out_row, g.out_pixel},
                       std::int64_t{g.out_channels} * bytes);
}

void check_geometry(const char* kernel, const ConvGeometry& g, int in_bytes, int out_bytes) {
  const auto require = [&](bool is_true, const char* message) { require_of(kernel, is_true, message); };
  for (const int value : {g.batch, g.height, g.width, g.in_channels, g.out_height, g.out_width, g.out_channels,
                          g.kernel_h, g.kernel_w, g.stride_h, g.stride_w, g.dilation_h, g.dilation_w, g.groups})
    require(value >= 1, "extents, strides and dilations must be positive");
  require(g.pad_top >= 0 && g.pad_left >= 0, "pads must not be negative");
  require(g.in_channels % g.groups == 0 && g.out_channels % g.groups == 0, "groups do not divide the channels");
  check_axis(kernel, g.out_height, g.kernel_h, g.stride_h, g.dilation_h, g.pad_top);
  check_axis(kernel, g.out_width, g.kernel_w, g.stride_w, g.dilation_w, g.pad_left);
  std::int64_t positions = 0, products = 0, columns = 0;
  add_extent(kernel, std::int64_t{g.batch} * g.out_height, g.out_width, &positions);
  add_extent(kernel, std::int64_t{g.kernel_h} * g.kernel_w, g.group_in(), &products);
  add_extent(kernel, g.out_channels, out_bytes, &columns);
  require(positions <= kLargestIndex && products <= kLargestIndex / 8 && columns <= kLargestIndex,
          "more elements than an index can count");
  // Required even for axes of extent 1, because kernels multiply the stride by coordinates in the padding.
  for (const std::ptrdiff_t stride : {g.in_pixel, g.in_row, g.out_pixel, g.out_row})
    require(stride <= kLargestIndex, "a stride exceeds 32 bits");
  input_extent(kernel, g, in_bytes);
  output_extent(kernel, g, out_bytes);
  require(g.out_width == 1 || g.out_pixel >= columns, "pixels of the result overlap");
  for (const std::ptrdiff_t stride : {g.in_pixel, g.in_row, g.in_image})
    require(stride % in_bytes == 0, "a stride of the operand is not a multiple of its elements");
  for (const std::ptrdiff_t stride : {g.out_pixel, g.out_row, g.out_image})
    require(stride % out_bytes == 0, "a stride of the result is not a multiple of its elements");
}

}  // namespace tpuconvert
