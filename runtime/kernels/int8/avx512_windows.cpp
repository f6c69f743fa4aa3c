#if defined(__x86_64__)

#include "int8/avx512_windows.h"

#include <algorithm>
#include <cstring>

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t kBandBytes = 48 * 1024;  // of padded input rows that are copied at once

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

template <typename Byte>
void step_along(int count, Byte* first, std::ptrdiff_t step, Byte** to) {
  for (int i = 0; i < count; ++i) to[i] = first + i * step;
}

}  // namespace

Windows::Windows(const ConvInt8Spec& spec, const SegmentLayout& layout)
    : g_(spec.geometry),
      layout_(layout),
      zero_(spec.input_zero),
      joins_taps_(!layout.is_padded_row && g_.kernel_w > 1 && g_.dilation_w == 1 && g_.in_pixel == g_.in_channels &&
                  layout.bytes == static_cast<std::size_t>(g_.in_channels)),
      column_step_(g_.stride_w * (layout.is_padded_row ? g_.in_channels : g_.in_pixel)) {
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
  } else if (!needs_no_padding()) {
    const std::size_t pixels = joins_taps_ ? static_cast<std::size_t>(g_.kernel_w) : 1;
    padding_ = AlignedBytes(static_cast<std::size_t>(g_.in_channels) * pixels);
    std::memset(padding_.data(), zero_, padding_.size());
  }
}

bool Windows::needs_no_padding() const {
  const auto reaches_over = [](int results, int stride, int pad, int taps, int dilation, int extent) {
    return pad > 0 || (results - 1) * stride + (taps - 1) * dilation >= extent;
  };
  return !reaches_over(g_.out_height, g_.stride_h, g_.pad_top, g_.kernel_h, g_.dilation_h, g_.height) &&
         !reaches_over(g_.out_width, g_.stride_w, g_.pad_left, g_.kernel_w, g_.dilation_w, g_.width);
}

std::size_t Windows::address_bytes() const {
  return aligned(static_cast<std::size_t>(layout_.count * layout_.copies) * kMaxRows * sizeof(const std::uint8_t*));
}

Position Windows::position_of(std::int64_t index) const {
  const std::int64_t row = index / g_.out_width;
  return {row / g_.out_height, static_cast<int>(row % g_.out_height), static_cast<int>(index % g_.out_width)};
}

// `count` results on; they do not leave the row before its end.
void Windows::advance(Position* position, int count) const {
  position->x += count;
  if (position->x < g_.out_width) return;
  position->x = 0;
  if (++position->y < g_.out_height) return;
  position->y = 0;
  ++position->image;
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

Segments Windows::place(const std::uint8_t* input, std::uint8_t* output, int rows, int band_y, Position* position,
                        const std::uint8_t** inputs, std::uint8_t** outputs) const {
  Stretch stretches[kMaxRows];
  int count = 0;
  bool is_inside_rows = true, is_inside = true;
  Position at = *position;
  const std::ptrdiff_t out_pixel = g_.out_pixel, column_step = column_step_;
  for (int row = 0; row < rows; ++count) {
    const int fit = std::min(rows - row, g_.out_width - at.x);
    const int top = at.y * g_.stride_h - g_.pad_top, left = at.x * g_.stride_w - g_.pad_left;
    stretches[count] = {row, row + fit, top, left};
    std::uint8_t* to = output + at.image * g_.out_image + at.y * g_.out_row + at.x * out_pixel;
    const std::uint8_t* from;  // the corner of the window, which may lie outside of the image
    if (layout_.is_padded_row) {
      from = input + static_cast<std::size_t>((at.y - band_y) * g_.stride_h) * band_row_bytes_ + at.x * column_step;
    } else {
      from = input + at.image * g_.in_image + top * g_.in_row + left * g_.in_pixel;
      is_inside_rows &= top >= 0 && top + (g_.kernel_h - 1) * g_.dilation_h < g_.height;
      is_inside &= left >= 0 && left + (fit - 1) * g_.stride_w + (g_.kernel_w - 1) * g_.dilation_w < g_.width;
    }
    step_along(fit, from, column_step, inputs + row);
    step_along(fit, to, out_pixel, outputs + row);
    row += fit;
    advance(&at, fit);
  }
  *position = at;
  int placed = 1;
  std::size_t bytes = layout_.bytes;
  if (layout_.is_padded_row) {
    placed = place_kernel_rows(rows, static_cast<std::ptrdiff_t>(band_row_bytes_) * g_.dilation_h, inputs);
  } else if (joins_taps_ && is_inside) {
    placed = is_inside_rows ? place_kernel_rows(rows, g_.in_row * g_.dilation_h, inputs)
                            : place_kernel_rows_at_edge(rows, stretches, count, inputs);
    bytes *= static_cast<std::size_t>(g_.kernel_w);
  } else if (!(is_inside && is_inside_rows)) {
    placed = place_taps_at_edge(rows, stretches, count, inputs);
  } else if (g_.taps() != 1) {
    placed = place_taps(rows, inputs);
  }
  const int copies = layout_.copies;
  for (int copy = 1; copy < copies; ++copy)
    std::memcpy(inputs + copy * placed * rows, inputs, static_cast<std::size_t>(placed * rows) * sizeof(*inputs));
  return {static_cast<std::size_t>(placed * copies), bytes};
}

// The following functions turn the corners of windows, in the first `rows` elements of `to`, into addresses of segments
// and return the number of segments.

// Rows of the kernel as one segment each.
int Windows::place_kernel_rows(int rows, std::ptrdiff_t step, const std::uint8_t** to) const {
  for (int y = 1; y < g_.kernel_h; ++y)
    for (int row = 0; row < rows; ++row) to[y * rows + row] = to[row] + y * step;
  return g_.kernel_h;
}

// The same where rows above or below the image are padding.
int Windows::place_kernel_rows_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const {
  for (int y = g_.kernel_h - 1; y >= 0; --y) {
    for (const Stretch* stretch = stretches; stretch != stretches + count; ++stretch) {
      const int at = stretch->top + y * g_.dilation_h;
      const bool is_in = at >= 0 && at < g_.height;
      for (int row = stretch->begin; row < stretch->end; ++row)
        to[y * rows + row] = is_in ? to[row] + y * g_.dilation_h * g_.in_row : padding_.data();
    }
  }
  return g_.kernel_h;
}

std::ptrdiff_t Windows::tap_step(int y, int x) const {
  return y * g_.dilation_h * g_.in_row + x * g_.dilation_w * g_.in_pixel;
}

int Windows::place_taps(int rows, const std::uint8_t** to) const {
  for (int tap = 1; tap < g_.taps(); ++tap) {
    const std::ptrdiff_t step = tap_step(tap / g_.kernel_w, tap % g_.kernel_w);
    for (int row = 0; row < rows; ++row) to[tap * rows + row] = to[row] + step;
  }
  return g_.taps();
}

int Windows::place_taps_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const {
  for (int y = g_.kernel_h - 1; y >= 0; --y) {
    for (int x = g_.kernel_w - 1; x >= 0; --x) {
      const std::ptrdiff_t step = tap_step(y, x);
      const std::uint8_t** segment = to + (y * g_.kernel_w + x) * rows;
      for (const Stretch* stretch = stretches; stretch != stretches + count; ++stretch) {
        const int at_y = stretch->top + y * g_.dilation_h;
        const bool is_row_in = at_y >= 0 && at_y < g_.height;
        int at_x = stretch->left + x * g_.dilation_w;
        for (int row = stretch->begin; row < stretch->end; ++row, at_x += g_.stride_w)
          segment[row] = is_row_in && at_x >= 0 && at_x < g_.width ? to[row] + step : padding_.data();
      }
    }
  }
  return g_.taps();
}

}  // namespace tpuconvert::avx512

#endif
