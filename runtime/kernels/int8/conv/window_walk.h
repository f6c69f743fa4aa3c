// Input addresses of consecutive results, computed for sixteen results at once and without branches at edges.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it contains plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kWalkLanes = 16;

// Address increments: per result, plus an extra increment at the end of a row and of an image.
struct WalkSteps {
  std::ptrdiff_t result, row, image;
};

// If no window leaves the input, `height` and `width` may be any upper bounds of its coordinates.
struct WalkShape {
  int height, width;
  int out_height, out_width;
  int stride_h, stride_w;
  int pad_top, pad_left;
  int kernel_h, kernel_w;
  int dilation_h, dilation_w;
  std::ptrdiff_t tap_row, tap_column;  // bytes from one tap to the next
  bool joins_taps;              // read a kernel row as one segment if it is inside the input
  const std::uint8_t* padding;  // read instead of segments outside of the input
  WalkSteps input, output, other;
};

// The next results: row, column, address of the window, and addresses of the result and of the second operand of the
// residual add. Lanes after the last result are undefined.
struct alignas(64) Walk {
  std::int32_t y[kWalkLanes], x[kWalkLanes];
  const std::uint8_t* input[kWalkLanes];
  std::uint8_t* output[kWalkLanes];
  const std::uint8_t* other[kWalkLanes];
};

// Writes the addresses of the segments of the next `rows` results to `to`, [segment][row], which needs space for
// kWalkLanes more addresses. Returns the number of segments: one per tap, or one per kernel row if `joined`. `joined` is
// false before the call if this is not wanted.
int place_segments(const WalkShape& shape, const Walk& walk, int rows, const std::uint8_t** to, bool* joined);

// Moves a walk by `rows` results.
void walk_on(const WalkShape& shape, const Walk& from, int rows, Walk* to);

}  // namespace tpuconvert::avx512
