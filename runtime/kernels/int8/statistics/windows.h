// Windows of a convolution over a row-major image: the sums of the elements that each element of the kernel is
// multiplied with, and the windows at some positions of the result.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tpuconvert {

// Geometry of height and width. Positions are those of the result.
struct WindowGeometry {
  std::array<std::int64_t, 2> extents{}, kernel{}, strides{}, dilations{}, pads_before{}, pads_after{}, positions{};

  // Computes the positions. Throws std::invalid_argument for extents without a window.
  void finish();
};

// Adds up the elements of a plane [height, width] for every element of the kernel; padding has the value 0.
template <typename T>
void sum_windows(const T* plane, const WindowGeometry& geometry, std::int64_t* sums);

// Copies elements of windows. The element type has the size of the values.
template <typename T>
class WindowCopy {
 public:
  // `positions` are indices into the flattened result. Throws std::invalid_argument for an index that is out of range.
  WindowCopy(const WindowGeometry& geometry, const std::int64_t* positions, std::int64_t count);

  // Writes the element of every window to `to`, for each element of the kernel, `stride` elements apart.
  void copy(const T* plane, T* to, std::int64_t stride);

 private:
  WindowGeometry geometry_;
  std::int64_t width_;
  std::vector<std::int32_t> corners_;  // offset of each window in the padded plane
  std::vector<T> padded_;              // empty if there is no padding
};

}  // namespace tpuconvert
