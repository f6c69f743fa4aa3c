#if defined(__x86_64__)

#include "int8/conv/row_band.h"

#include <algorithm>
#include <cstring>

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

Band::Band(const ConvInt8Spec& spec, const SegmentLayout& layout, std::size_t limit)
    : g_(spec.geometry),
      zero_(spec.input_zero),
      has_lines_(layout.windows == WindowLayout::kColumns),
      columns_((g_.out_width - 1) * g_.stride_w + g_.kernel_w),
      row_bytes_(static_cast<std::size_t>(columns_) * static_cast<std::size_t>(g_.in_channels)) {
  if (has_lines_) {
    order_ = column_order(g_.kernel_h, g_.in_channels);
    column_pitch_ = g_.kernel_h * g_.in_channels;
    row_pitch_ = columns_ * column_pitch_;
  } else {
    column_pitch_ = g_.in_channels;
    row_pitch_ = static_cast<std::ptrdiff_t>(row_bytes_) * g_.stride_h;
  }
  while (results_ < g_.out_height && bytes_of(results_ + 1) <= limit) ++results_;
  bytes_ = aligned(bytes_of(results_));
}

std::size_t Band::lines_at(int results) const {
  return aligned(static_cast<std::size_t>(input_rows(results)) * row_bytes_ + kSlack);
}

std::size_t Band::bytes_of(int results) const {
  const std::size_t lines = has_lines_ ? static_cast<std::size_t>(results * row_pitch_) + kSlack : 0;
  return lines_at(results) + lines;
}

const std::uint8_t* Band::copy(const std::uint8_t* image, int y, int count, std::uint8_t* memory) const {
  copy_rows(image, y, count, memory);
  if (!has_lines_) return memory;
  std::uint8_t* lines = memory + lines_at(results_);
  const std::ptrdiff_t row = static_cast<std::ptrdiff_t>(row_bytes_);
  for (int result = 0; result < count; ++result)
    interleave_columns(order_, memory + result * g_.stride_h * row, row * g_.dilation_h, columns_,
                       lines + result * row_pitch_);
  return lines;
}

// Copies input rows with the padding around them.
void Band::copy_rows(const std::uint8_t* image, int y, int count, std::uint8_t* to) const {
  const int top = y * g_.stride_h - g_.pad_top;
  const int left = std::min(g_.pad_left, columns_);
  const int kept = std::clamp(g_.width, 0, columns_ - left);
  const std::size_t pixel = static_cast<std::size_t>(g_.in_channels);
  const std::size_t kept_bytes = static_cast<std::size_t>(kept) * pixel;
  for (int i = 0; i < input_rows(count); ++i, to += row_bytes_) {
    const int from = top + i;
    if (from < 0 || from >= g_.height) {
      std::memset(to, zero_, row_bytes_);
      continue;
    }
    std::memset(to, zero_, static_cast<std::size_t>(left) * pixel);
    std::uint8_t* first = to + static_cast<std::size_t>(left) * pixel;
    const std::uint8_t* line = image + from * g_.in_row;
    if (g_.in_pixel == g_.in_channels) {
      std::memcpy(first, line, kept_bytes);
    } else {
      for (int x = 0; x < kept; ++x) std::memcpy(first + x * g_.in_channels, line + x * g_.in_pixel, pixel);
    }
    std::memset(first + kept_bytes, zero_, static_cast<std::size_t>(columns_ - left - kept) * pixel);
  }
}

}  // namespace tpuconvert::avx512

#endif
