// Packing of 8-bit weights directly from the file into the order of the register tiles.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

struct WeightPanelTask {
  const std::uint8_t* weights;               // those of the first channel
  std::ptrdiff_t out, in, y, x;              // bytes to the next output channel, input channel, row, column
  int columns;                               // output channels, at most 64
  int inputs;
  int kernel_h, kernel_w;
  std::uint8_t zero;                         // the byte that means 0: 0 of signed weights, 128 of unsigned ones
  std::size_t segment_bytes;                 // of a tap; the inputs rounded up to a multiple of 4
  int full;                                  // accumulators of 16 channels
  bool half;                                 // and one of 8
  std::uint8_t* to;                          // [tap][segment_bytes / 4][accumulator][lane][4]; all of it is written
  std::int32_t* sums;                        // of the weights of each lane: 16 for every accumulator
  std::int32_t* magnitudes;                  // of their magnitudes
};

// True if this memory order is supported: input or output channels are contiguous, or each output channel is one run of
// [input][tap] with at most 16 taps. Sums of at most 2^23 weights per channel fit 32 bits.
bool covers_weights(const WeightPanelTask& task);

void pack_weights_avx512vnni(const WeightPanelTask& task);

}  // namespace tpuconvert::avx512
