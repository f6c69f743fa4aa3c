// Addresses of the inputs of consecutive results, sixteen at once and without branches at edges.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it holds plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kWalkLanes = 16;

// Address increments: per result, and in addition at the end of a row and of an image.
struct WalkSteps {
  std::ptrdiff_t result, row, image;
};

// If no window leaves the input, height and width may be any bound of its coordinates.
struct WalkShape {
  int height, width;
  int out_height, out_width;
  int stride_h, stride_w;
  int pad_top, pad_left;
  int kernel_h, kernel_w;
  int dilation_h, dilation_w;
  std::ptrdiff_t tap_row, tap_column;  // bytes from tap to tap
  bool joins_taps;              // a kernel row inside the input is one segment
  const std::uint8_t* padding;  // replaces segments outside of the input
  WalkSteps input, output, other;
};

// The next results: their rows and columns, addresses of their windows, and where they and their counterparts in another
// tensor are. Lanes after the last result of all may hold anything.
struct alignas(64) Walk {
  std::int32_t y[kWalkLanes], x[kWalkLanes];
  const std::uint8_t* input[kWalkLanes];
  std::uint8_t* output[kWalkLanes];
  const std::uint8_t* other[kWalkLanes];
};

// Addresses of the segments under the next `rows` results, [segment][row], with room for kWalkLanes more.
// Returns the number of segments: one per tap, or one per kernel row if `joined`.
int place_segments(const WalkShape& shape, const Walk& walk, int rows, const std::uint8_t** to, bool* joined);

// The walk `rows` results further on.
void walk_on(const WalkShape& shape, const Walk& from, int rows, Walk* to);

}  // namespace tpuconvert::avx512
