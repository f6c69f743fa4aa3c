// Arguments of the depthwise convolution kernels for AVX512-VNNI. Plain data, like tile.h.
//
// Channels are divided into blocks of 64, 32 or 16, one byte vector wide. Interleaving the bytes of four rows puts four
// vertical taps of a channel into one dword, and a block into four vectors: dword 4 * l + i of vector v is channel 16 *
// l + 4 * v + i, where l is the 128-bit lane (see lane_of). Weights and parameters have this order. Packing the results
// to bytes restores the channel order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "int8/tile/tile.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

constexpr int kVectors = 4;  // vectors of a block

struct DepthwiseArguments {
  const std::uint8_t* rows[4];       // input rows under the window, at the first channel of the block
  std::ptrdiff_t in_pixel;           // bytes from one input pixel to the next
  const std::uint8_t* padding;       // 64 bytes, read instead of pixels outside of the image
  int width;                         // width of the input in pixels
  int left;                          // input column of the first tap of the first result
  int out_width;
  std::uint8_t* outputs[2];          // rows of the result, at the first channel of the block
  std::ptrdiff_t out_pixel;
  const std::int8_t* weights;        // [result row][tap column][vector][channel][4 taps]
  const LaneParameters* parameters;  // [vector], repeated to 64 bytes for narrow blocks
  std::int32_t* sums;                // kSums: [result row][pixel][64] in channel order
  std::uint64_t mask;                // one bit per channel, set if the channel is stored
  const std::uint8_t* lut;
  int offset, low, high;
};

using DepthwiseKernel = void (*)(const DepthwiseArguments&);

// Returns the kernel for 3x3 windows and blocks of `width` channels. `rows` is the number of result rows per call; 2 is
// supported only for stride 1.
DepthwiseKernel depthwise_3x3(TileEpilogue epilogue, int width, int stride, int rows);
// Like depthwise_3x3, for stride 1 and blocks of 32 or 16 channels: several pixels share a register.
DepthwiseKernel depthwise_3x3_joined(TileEpilogue epilogue, int width, int rows);

// Arguments of the kernel for any window and blocks of 64 channels. It interleaves groups of four rows into a buffer,
// then sums over columns of the buffer for every result.
struct DepthwiseLine {
  const std::uint8_t* const* rows;   // 4 * groups input rows; rows after the window have zero weights
  int groups;
  std::ptrdiff_t in_pixel;
  const std::uint8_t* padding;
  int width;                         // width of the input in pixels
  int left;                          // input column of the first buffer column
  int columns;                       // columns in the buffer
  std::uint8_t* buffer;              // [column][group][vector][64]
  int taps;                          // taps of a kernel row
  int stride, dilation;              // in input columns
  int out_width;                     // number of results, limited by the buffer
  std::uint8_t* output;
  std::ptrdiff_t out_pixel;
  const std::int8_t* weights;        // [tap column][group][vector][channel][4 taps]
  const LaneParameters* parameters;
  std::int32_t* sums;                // kSums: [pixel][64]
  std::uint64_t mask;
  const std::uint8_t* lut;
  int offset, low, high;
};

using DepthwiseLineKernel = void (*)(const DepthwiseLine&);

DepthwiseLineKernel depthwise_line(TileEpilogue epilogue);

std::unique_ptr<ConvInt8Kernel> make_depthwise(const ConvInt8Spec& spec);

}  // namespace tpuconvert::avx512
