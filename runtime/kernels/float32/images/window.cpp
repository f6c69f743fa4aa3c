#include "float32/images/window.h"

#include <stdexcept>
#include <string>

namespace tpuconvert {

namespace {

constexpr std::ptrdiff_t kFloat = sizeof(float);
constexpr int kLargest = 1 << 28;

[[noreturn]] void refuse(const char* kind, const char* what) {
  throw std::invalid_argument(std::string(kind) + ": " + what);
}

std::size_t extent(const char* kind, std::int64_t images, std::int64_t rows, std::int64_t pixels, std::int64_t channels,
                   std::ptrdiff_t image, std::ptrdiff_t row, std::ptrdiff_t pixel) {
  std::int64_t total = channels * kFloat, step = 0;
  const std::int64_t counts[] = {images, rows, pixels}, strides[] = {image, row, pixel};
  for (int i = 0; i < 3; ++i) {
    if (strides[i] < 0 || strides[i] % kFloat != 0) refuse(kind, "a stride is not possible");
    if (__builtin_mul_overflow(counts[i] - 1, strides[i], &step) || __builtin_add_overflow(total, step, &total))
      refuse(kind, "extents are too large");
  }
  return static_cast<std::size_t>(total);
}

}  // namespace

Window window_of(const ConvGeometry& g, const char* kind) {
  const int positive[] = {g.batch,    g.height,   g.width,    g.in_channels, g.out_height, g.out_width,  g.out_channels,
                          g.kernel_h, g.kernel_w, g.stride_h, g.stride_w,    g.dilation_h, g.dilation_w, g.groups};
  for (const int value : positive)
    if (value < 1 || value > kLargest) refuse(kind, "a parameter is out of range");
  if (g.pad_top < 0 || g.pad_left < 0 || g.pad_top > kLargest || g.pad_left > kLargest)
    refuse(kind, "a pad is out of range");
  if (g.in_channels % g.groups != 0 || g.out_channels % g.groups != 0) refuse(kind, "the channels do not form groups");
  // All coordinates must fit 32 bits.
  const std::int64_t limit = INT32_MAX / 2;
  const std::int64_t down = static_cast<std::int64_t>(g.out_height) * g.stride_h +
                            static_cast<std::int64_t>(g.kernel_h) * g.dilation_h;
  const std::int64_t along = static_cast<std::int64_t>(g.out_width) * g.stride_w +
                             static_cast<std::int64_t>(g.kernel_w) * g.dilation_w;
  const std::int64_t taps = static_cast<std::int64_t>(g.kernel_h) * g.kernel_w;
  if (down > limit || along > limit || taps > limit) refuse(kind, "extents are too large");
  Window window;
  window.batch = g.batch;
  window.height = g.height;
  window.width = g.width;
  window.out_height = g.out_height;
  window.out_width = g.out_width;
  window.kernel_h = g.kernel_h;
  window.kernel_w = g.kernel_w;
  window.stride_h = g.stride_h;
  window.stride_w = g.stride_w;
  window.dilation_h = g.dilation_h;
  window.dilation_w = g.dilation_w;
  window.pad_top = g.pad_top;
  window.pad_left = g.pad_left;
  window.in_pixel = g.in_pixel / kFloat;
  window.in_row = g.in_row / kFloat;
  window.in_image = g.in_image / kFloat;
  window.out_pixel = g.out_pixel / kFloat;
  window.out_row = g.out_row / kFloat;
  window.out_image = g.out_image / kFloat;
  return window;
}

std::size_t input_bytes(const ConvGeometry& g, const char* kind) {
  return extent(kind, g.batch, g.height, g.width, g.in_channels, g.in_image, g.in_row, g.in_pixel);
}

std::size_t output_bytes(const ConvGeometry& g, const char* kind) {
  return extent(kind, g.batch, g.out_height, g.out_width, g.out_channels, g.out_image, g.out_row, g.out_pixel);
}

void check(const Limits& limits, const char* kind) {
  if (limits.are_set && !(limits.low <= limits.high && limits.high != 0)) refuse(kind, "the limits are not possible");
}

}  // namespace tpuconvert
