// Inner loops of the general convolution: matrix products of gathered windows ("taps") with weights.
#pragma once

#include <cstdint>

#include "core/isa.h"

namespace tpuconvert {

// Positions of the result that are computed together; buffers are padded to this number.
constexpr std::int64_t kPositions = 32;

// sums[channel][position] = sum over k of weights[channel * pitch + k] * taps[k][position], k ascending.
using ProductRows = void (*)(const double* taps, const double* weights, std::int64_t pitch, std::int64_t depth,
                             std::int64_t channels, double* sums);

// The same with 32-bit words that contain two 16-bit numbers each: both products of a pair are added. No sum may
// overflow 32 bits.
using PairRows = void (*)(const std::int32_t* taps, const std::int32_t* weights, std::int64_t pitch, std::int64_t pairs,
                          std::int64_t channels, std::int32_t* sums);

struct ConvRows {
  ProductRows products;
  PairRows pairs;
};

ConvRows conv_rows_scalar();
ConvRows conv_rows_avx2();
ConvRows conv_rows_avx512();
ConvRows conv_rows_neon();

}  // namespace tpuconvert
