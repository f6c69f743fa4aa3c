#if defined(__x86_64__)

#include "int8/avx512_windows.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t kBandBytes = 48 * 1024;  // of padded input rows that are copied at once

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Windows::Windows(const ConvInt8Spec& spec, const SegmentLayout& layout)
    : g_(spec.geometry), layout_(layout), zero_(spec.input_zero) {
  std::ptrdiff_t row_pitch = g_.in_row, pixel_pitch = g_.in_pixel;
  bool can_leave = false;
  if (layout.is_padded_row) {
    band_row_bytes_ = static_cast<std::size_t>((g_.out_width - 1) * g_.stride_w + g_.kernel_w) *
                      static_cast<std::size_t>(g_.in_channels);
    const auto bytes_of = [&](int results) {
      const int rows = (results - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1;
      return static_cast<std::size_t>(rows) * band_row_bytes_;
    };
    band_rows_ = 1;
    while (band_rows_ < g_.out_height && bytes_of(band_rows_ + 1) <= kBandBytes) ++band_rows_;
    band_bytes_ = aligned(bytes_of(band_rows_) + kSlack);
    row_pitch = static_cast<std::ptrdiff_t>(band_row_bytes_);
    pixel_pitch = g_.in_channels;
  } else if (!needs_no_padding()) {
    can_leave = true;
  }
  shape_.stride_h = g_.stride_h;
  shape_.stride_w = g_.stride_w;
  shape_.out_height = g_.out_height;
  shape_.out_width = g_.out_width;
  shape_.pad_top = can_leave ? g_.pad_top : 0;
  shape_.pad_left = can_leave ? g_.pad_left : 0;
  shape_.height = can_leave ? g_.height : std::numeric_limits<int>::max();
  shape_.width = can_leave ? g_.width : std::numeric_limits<int>::max();
  shape_.kernel_h = g_.kernel_h;
  shape_.kernel_w = layout.is_padded_row ? 1 : g_.kernel_w;
  shape_.dilation_h = g_.dilation_h;
  shape_.dilation_w = g_.dilation_w;
  shape_.tap_row = row_pitch * g_.dilation_h;
  shape_.tap_column = pixel_pitch * g_.dilation_w;
  shape_.joins_taps = shape_.kernel_w > 1 && g_.dilation_w == 1 && g_.in_pixel == g_.in_channels &&
                      layout.bytes == static_cast<std::size_t>(g_.in_channels);
  if (can_leave) {
    const std::size_t pixels = shape_.joins_taps ? static_cast<std::size_t>(g_.kernel_w) : 1;
    padding_ = AlignedBytes(static_cast<std::size_t>(g_.in_channels) * pixels);
    std::memset(padding_.data(), zero_, padding_.size());
    shape_.padding = padding_.data();
  }
  const auto steps = [this](std::ptrdiff_t result, std::ptrdiff_t row, std::ptrdiff_t image) {
    return WalkSteps{result, row - g_.out_width * result, image - g_.out_height * row};
  };
  shape_.input = steps(pixel_pitch * g_.stride_w, row_pitch * g_.stride_h, layout.is_padded_row ? 0 : g_.in_image);
  shape_.output = steps(g_.out_pixel, g_.out_row, g_.out_image);
  if (spec.residual) shape_.other = steps(spec.residual->pixel, spec.residual->row, spec.residual->image);
}

bool Windows::needs_no_padding() const {
  const auto reaches_over = [](int results, int stride, int pad, int taps, int dilation, int extent) {
    return pad > 0 || (results - 1) * stride + (taps - 1) * dilation >= extent;
  };
  return !reaches_over(g_.out_height, g_.stride_h, g_.pad_top, g_.kernel_h, g_.dilation_h, g_.height) &&
         !reaches_over(g_.out_width, g_.stride_w, g_.pad_left, g_.kernel_w, g_.dilation_w, g_.width);
}

std::size_t Windows::address_bytes() const {
  return aligned((static_cast<std::size_t>(layout_.count * layout_.copies) * kMaxRows + kWalkLanes) *
                 sizeof(const std::uint8_t*));
}

void Windows::begin(const ConvAddresses& at, std::int64_t index, Walk* walk) const {
  const bool is_band = layout_.is_padded_row;
  const std::int64_t row = index / g_.out_width;
  std::int64_t image = row / g_.out_height;
  int x = static_cast<int>(index % g_.out_width), y = static_cast<int>(row % g_.out_height);
  const int band_y = is_band ? y : 0;
  const std::uint8_t* corner = at.input - (is_band ? 0 : g_.pad_top * g_.in_row + g_.pad_left * g_.in_pixel);
  const auto offset = [&](const WalkSteps& steps, int from_y) {
    const std::ptrdiff_t row_bytes = steps.row + g_.out_width * steps.result;
    return image * (steps.image + g_.out_height * row_bytes) + (y - from_y) * row_bytes + x * steps.result;
  };
  for (int lane = 0; lane < kWalkLanes; ++lane) {
    walk->x[lane] = x;
    walk->y[lane] = y;
    walk->input[lane] = corner + offset(shape_.input, band_y);
    walk->output[lane] = at.output + offset(shape_.output, 0);
    walk->other[lane] = at.other + offset(shape_.other, 0);
    if (++x < g_.out_width) continue;
    x = 0;
    if (++y < g_.out_height) continue;
    y = 0;
    ++image;
  }
}

Segments Windows::place(const Walk& walk, int rows, const std::uint8_t** inputs) const {
  bool joined = false;
  const int placed = place_segments(shape_, walk, rows, inputs, &joined);
  const int copies = layout_.copies;
  for (int copy = 1; copy < copies; ++copy)
    std::memcpy(inputs + copy * placed * rows, inputs, static_cast<std::size_t>(placed * rows) * sizeof(*inputs));
  return {static_cast<std::size_t>(placed * copies), layout_.bytes * static_cast<std::size_t>(joined ? g_.kernel_w : 1)};
}

void Windows::copy_band(const std::uint8_t* image, int y, int count, std::uint8_t* band) const {
  const int top = y * g_.stride_h - g_.pad_top;
  const int rows = (count - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1;
  const int width = (g_.out_width - 1) * g_.stride_w + g_.kernel_w;
  const int left = std::min(g_.pad_left, width);
  const int kept = std::clamp(g_.width, 0, width - left);
  const std::size_t pixel = static_cast<std::size_t>(g_.in_channels);
  const std::size_t kept_bytes = static_cast<std::size_t>(kept) * pixel;
  for (int i = 0; i < rows; ++i, band += band_row_bytes_) {
    const int from = top + i;
    if (from < 0 || from >= g_.height) {
      std::memset(band, zero_, band_row_bytes_);
      continue;
    }
    std::memset(band, zero_, static_cast<std::size_t>(left) * pixel);
    std::uint8_t* to = band + static_cast<std::size_t>(left) * pixel;
    const std::uint8_t* line = image + from * g_.in_row;
    if (g_.in_pixel == g_.in_channels) {
      std::memcpy(to, line, kept_bytes);
    } else {
      for (int x = 0; x < kept; ++x) std::memcpy(to + x * g_.in_channels, line + x * g_.in_pixel, pixel);
    }
    std::memset(to + kept_bytes, zero_, static_cast<std::size_t>(width - left - kept) * pixel);
  }
}

}  // namespace tpuconvert::avx512

#endif
