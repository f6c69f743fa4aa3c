// Arguments of the depthwise convolution kernels for AVX512-VNNI. Plain data, like tile.h.
//
// Channels are taken in blocks of 64, 32 or 16, one byte vector wide. Interleaving the bytes of four rows puts four
// vertical taps of a channel into one dword, a block into four vectors: dword 4 * l + i of vector v is channel
// 16 * l + 4 * v + i, for 128-bit lane l (lane_of). Weights and parameters have this order; packing the results restores the channel order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "int8/tile/tile.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

constexpr int kVectors = 4;  // of a block

struct DepthwiseArguments {
  const std::uint8_t* rows[4];       // input rows under the window, at the first channel of the block
  std::ptrdiff_t in_pixel;           // bytes from pixel to pixel
  const std::uint8_t* padding;       // 64 bytes used for pixels outside of the image
  int width;                         // of the input
  int left;                          // input column of the first tap of the first result
  int out_width;
  std::uint8_t* outputs[2];          // result rows, at the first channel
  std::ptrdiff_t out_pixel;
  const std::int8_t* weights;        // [result row][tap column][vector][channel][4 taps]
  const LaneParameters* parameters;  // [vector], repeated to 64 bytes for narrow blocks
  std::int32_t* sums;                // kSums: [result row][pixel][64] in order of the channels
  std::uint64_t mask;                // one bit for every channel that is stored
  const std::uint8_t* lut;
  int offset, low, high;
};

using DepthwiseKernel = void (*)(const DepthwiseArguments&);

// Kernels for 3x3 windows; `width` is that of the block, `rows` (of results) is 2 only for stride 1.
DepthwiseKernel depthwise_3x3(TileEpilogue epilogue, int width, int stride, int rows);
// The same for blocks narrower than 64 channels and stride 1.
DepthwiseKernel depthwise_3x3_joined(TileEpilogue epilogue, int width, int rows);

// For any window: rows in groups of four are interleaved into a buffer, then every result sums over columns of it.
// Blocks of 64 channels.
struct DepthwiseLine {
  const std::uint8_t* const* rows;   // 4 * groups input rows; those after the window have zero weights
  int groups;
  std::ptrdiff_t in_pixel;
  const std::uint8_t* padding;
  int width;                         // of the input
  int left;                          // input column of the first column in the buffer
  int columns;                       // in the buffer
  std::uint8_t* buffer;              // [column][group][vector][64]
  int taps;                          // of a row of the window
  int stride, dilation;              // in columns
  int out_width;                     // results that the buffer suffices for
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
