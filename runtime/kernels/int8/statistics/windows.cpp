#include "int8/statistics/windows.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace tpuconvert {

namespace {

// First index and end of the positions whose element at `offset` is inside of the image.
struct Inside {
  std::int64_t first, end;
};

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return a > 0 ? (a + b - 1) / b : 0; }

Inside inside(std::int64_t offset, std::int64_t stride, std::int64_t extent, std::int64_t positions) {
  const std::int64_t first = std::min(divided_up(-offset, stride), positions);
  return {first, std::max(first, std::min(divided_up(extent - offset, stride), positions))};
}

}  // namespace

void WindowGeometry::finish() {
  for (int axis = 0; axis < 2; ++axis) {
    const std::int64_t limit = std::numeric_limits<std::int32_t>::max();
    for (std::int64_t value : {extents[axis], kernel[axis], strides[axis], dilations[axis]})
      if (value < 1 || value > limit) throw std::invalid_argument("windows: an extent is not positive");
    if (std::min(pads_before[axis], pads_after[axis]) < 0 || std::max(pads_before[axis], pads_after[axis]) > limit)
      throw std::invalid_argument("windows: a pad is negative");
    const std::int64_t room = extents[axis] + pads_before[axis] + pads_after[axis] - dilations[axis] * (kernel[axis] - 1) - 1;
    if (room < 0) throw std::invalid_argument("windows: the kernel is larger than the image");
    positions[axis] = room / strides[axis] + 1;
  }
  const std::int64_t height = extents[0] + pads_before[0] + pads_after[0], width = extents[1] + pads_before[1] + pads_after[1];
  if (height > std::numeric_limits<std::int32_t>::max() / width) throw std::invalid_argument("windows: the image is too large");
}

template <typename T>
void sum_windows(const T* plane, const WindowGeometry& g, std::int64_t* sums) {
  const std::int64_t width = g.extents[1];
  if (g.kernel[0] * g.kernel[1] == 1 && g.positions == g.extents && g.pads_before[0] + g.pads_before[1] == 0) {
    std::int32_t total = 0;  // |sum| < 2^31: the image has less than 2^23 elements
    const std::int64_t size = g.extents[0] * width;
    if (size < 1 << 23) {
      for (std::int64_t i = 0; i < size; ++i) total += plane[i];
      sums[0] = total;
      return;
    }
  }
  std::vector<std::int64_t> columns(static_cast<std::size_t>(width));
  std::vector<std::int32_t> part(static_cast<std::size_t>(width));
  for (std::int64_t ky = 0; ky < g.kernel[0]; ++ky) {
    const std::int64_t top = ky * g.dilations[0] - g.pads_before[0];
    const Inside rows = inside(top, g.strides[0], g.extents[0], g.positions[0]);
    std::fill(columns.begin(), columns.end(), 0);
    for (std::int64_t start = rows.first; start < rows.end; start += 1 << 16) {
      const std::int64_t end = std::min<std::int64_t>(rows.end, start + (1 << 16));  // |sum| < 2^24
      std::fill(part.begin(), part.end(), 0);
      for (std::int64_t y = start; y < end; ++y) {
        const T* row = plane + (y * g.strides[0] + top) * width;
        for (std::int64_t x = 0; x < width; ++x) part[x] += row[x];
      }
      for (std::int64_t x = 0; x < width; ++x) columns[x] += part[x];
    }
    for (std::int64_t kx = 0; kx < g.kernel[1]; ++kx) {
      const std::int64_t left = kx * g.dilations[1] - g.pads_before[1];
      const Inside across = inside(left, g.strides[1], width, g.positions[1]);
      std::int64_t total = 0;
      for (std::int64_t x = across.first; x < across.end; ++x) total += columns[x * g.strides[1] + left];
      *sums++ = total;
    }
  }
}

template void sum_windows(const std::uint8_t*, const WindowGeometry&, std::int64_t*);
template void sum_windows(const std::int8_t*, const WindowGeometry&, std::int64_t*);

template <typename T>
WindowCopy<T>::WindowCopy(const WindowGeometry& geometry, const std::int64_t* positions, std::int64_t count)
    : geometry_(geometry), width_(geometry.extents[1] + geometry.pads_before[1] + geometry.pads_after[1]) {
  const WindowGeometry& g = geometry_;
  const std::int64_t height = g.extents[0] + g.pads_before[0] + g.pads_after[0];
  corners_.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    if (positions[i] < 0 || positions[i] >= g.positions[0] * g.positions[1])
      throw std::invalid_argument("windows: a position is outside of the result");
    const std::int64_t y = positions[i] / g.positions[1] * g.strides[0], x = positions[i] % g.positions[1] * g.strides[1];
    corners_.push_back(static_cast<std::int32_t>(y * width_ + x));
  }
  if (height != g.extents[0] || width_ != g.extents[1]) padded_.resize(static_cast<std::size_t>(height * width_));
}

template <typename T>
void WindowCopy<T>::copy(const T* plane, T* to, std::int64_t stride) {
  const WindowGeometry& g = geometry_;
  if (!padded_.empty()) {
    T* row = padded_.data() + g.pads_before[0] * width_ + g.pads_before[1];
    for (std::int64_t y = 0; y < g.extents[0]; ++y, row += width_)
      std::copy(plane + y * g.extents[1], plane + (y + 1) * g.extents[1], row);
    plane = padded_.data();
  }
  const std::int32_t* corners = corners_.data();
  const auto count = static_cast<std::int64_t>(corners_.size());
  for (std::int64_t ky = 0; ky < g.kernel[0]; ++ky) {
    for (std::int64_t kx = 0; kx < g.kernel[1]; ++kx, to += stride) {
      const T* from = plane + ky * g.dilations[0] * width_ + kx * g.dilations[1];
      for (std::int64_t i = 0; i < count; ++i) to[i] = from[corners[i]];
    }
  }
}

template class WindowCopy<std::uint8_t>;
template class WindowCopy<std::uint32_t>;

}  // namespace tpuconvert
