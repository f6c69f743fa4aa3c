// Packing of 8-bit weights directly from the file for the register tiles.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

struct WeightPanelTask {
  const std::uint8_t* weights;               // weights of the first output channel
  std::ptrdiff_t out, in, y, x;              // strides in bytes: output channel, input channel, row, column
  int columns;                               // number of output channels, at most 64
  int inputs;
  int kernel_h, kernel_w;
  std::uint8_t zero;                         // stored zero point: 0 for signed weights, 128 for unsigned ones
  std::size_t segment_bytes;                 // bytes of a tap: a multiple of 4, at least the inputs
  int full;                                  // accumulators of 16 channels
  bool half;                                 // true if an accumulator of 8 channels follows
  // [tap][segment_bytes / 4][accumulator][lane][4]; steps after the last input are not written.
  std::uint8_t* to;
  std::int32_t* sums;                        // [accumulator][16 lanes], sums of the weights
  std::int32_t* magnitudes;                  // [accumulator][16 lanes], sums of the magnitudes of the weights
};

// True if the memory order is supported: input or output channels are contiguous, or each output channel is contiguous
// as [input][tap] with at most 16 taps. Channels must have at most 2^23 weights, so that sums fit 32 bits.
bool covers_weights(const WeightPanelTask& task);

void pack_weights_avx512vnni(const WeightPanelTask& task);

}  // namespace tpuconvert::avx512
