// The register tile of the AVX512-VNNI convolution: a few result pixels times up to 64 output channels.
//
// Included by files compiled for AVX512-VNNI as well as by baseline ones, so it holds plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kLanes = 16;  // output channels of one accumulator register

// The lane of a panel's accumulators, 0..16 * accumulators - 1, that computes a column, and its inverse. Bytes
// that are packed from four accumulators have four columns of each in turn; with fewer, bytes are put in order then.
constexpr int lane_of(int column, int accumulators) {
  return accumulators == 4 ? 16 * (column / 4 % 4) + column / 16 * 4 + column % 4 : column;
}

// Epilogues of a tile, from the cheapest to the most expensive. With x = float(sum), exact below 2^24:
enum class TileEpilogue {
  kSubnormal,  // stored = the bits of factor * (the number whose bits are the sum) + second, see epilogue/subnormal_requant.cpp
  kOneFactor,  // stored = floor(factor * x + addend)
  kTwoFactors, // v = floor(factor * x + small_factor * x), stored = (v + 1 + 2 * offset) >> 1
  kKinked,     // the same with small_factor * x + copysign(kink, x) as second summand
  kSums,       // the sums themselves, in `sums`
};

// Parameters of one accumulator, 64 bytes each. Floors are rounded down at both steps of an operation (the fused
// multiply-add and the conversion), which makes them floors of the exact values.
struct LaneParameters {
  std::int32_t bias[kLanes];
  float factor[kLanes];
  float second[kLanes];  // kSubnormal, kOneFactor: addend; otherwise small_factor
  float kink[kLanes];
};

// Residual add, see ResidualSpec. Only for tiles that store three or four accumulators, or all channels of
// one or two.
struct TileResidual {
  const std::int32_t* factors;         // [kResidualBlock], in the order of ResidualRows, for the elements of a vector
  const std::int32_t* offsets;         // the same
  const std::uint8_t* const* others;   // [row], to which output_offset is added
  int shift;
  std::uint8_t low, high;
  bool is_adjacent;                    // as for the results
};

struct TileArguments {
  const std::uint8_t* const* inputs;  // [segment][row]: where the bytes of a segment begin
  std::size_t input_offset;           // added to each of them
  std::size_t segments;
  std::size_t segment_bytes;          // a multiple of 4, not 0
  const std::uint32_t* skips;         // [segment]: number of 4-byte steps of weights to skip after it
  const std::int8_t* weights;         // [segment][segment_bytes / 4][accumulator][lane][4]
  std::ptrdiff_t ahead;               // distance to bytes to prefetch, 64 of each 256
  const LaneParameters* parameters;   // [accumulator]
  std::uint8_t* const* outputs;       // [row]
  std::size_t output_offset;          // added to each of them
  std::int32_t* sums;                 // kSums: [row][kLanes * accumulators], columns in order
  std::uint64_t mask;                 // one bit for every channel that is stored
  bool is_adjacent;                   // results of the rows follow each other, 16 * accumulators bytes each
  const std::uint8_t* lut;            // 256 bytes or null
  int offset;                         // kTwoFactors, kKinked
  int low, high;
  TileResidual residual;              // tile_..._residual
};

using TileKernel = void (*)(const TileArguments&);

// Registers: rows * accumulators <= 28, which leaves one for the broadcast bytes and up to three for weights; and 12
// general registers for the addresses of the rows. A half accumulator (8 channels) follows the `full` ones.
constexpr int largest_rows(int full, bool half) {
  const int accumulators = full + (half ? 1 : 0);
  return accumulators == 4 ? 7 : accumulators == 3 ? 9 : 12;
}

// One per form. The shapes are full = 1, 2, 3, 4 without and full = 0, 1 with a half accumulator; 1 <= rows <=
// largest_rows.
TileKernel tile_subnormal(int full, bool half, int rows);
TileKernel tile_one_factor(int full, bool half, int rows);
// The same with `residual`; only for full = 1, 2, 3, 4 without a half accumulator.
TileKernel tile_subnormal_residual(int full, int rows);
TileKernel tile_one_factor_residual(int full, int rows);
TileKernel tile_two_factors(int full, bool half, int rows);
TileKernel tile_kinked(int full, bool half, int rows);
TileKernel tile_sums(int full, bool half, int rows);

}  // namespace tpuconvert::avx512
