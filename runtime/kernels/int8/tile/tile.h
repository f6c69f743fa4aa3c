// The register tile of the convolution for AVX512-VNNI and AMX: a few result pixels times up to 64 output channels.
//
// Included by files compiled for these instruction sets as well as by baseline ones, so it contains plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kLanes = 16;  // output channels of one accumulator register

// Lane of a panel's accumulators, 0..16 * accumulators - 1, that computes a column; the function is its own inverse.
// With four accumulators, packing to bytes interleaves groups of four lanes, and this order of the columns compensates
// for it. With fewer, bytes are permuted after packing.
constexpr int lane_of(int column, int accumulators) {
  return accumulators == 4 ? 16 * (column / 4 % 4) + column / 16 * 4 + column % 4 : column;
}

// Epilogues of a tile, from the cheapest to the most expensive. x = float(sum), exact for |sum| < 2^24.
enum class TileEpilogue {
  kSubnormal,  // stored = bits of (factor * (float with the bits of sum) + second); see epilogue/subnormal_requant.cpp
  kOneFactor,  // stored = floor(factor * x + addend)
  kTwoFactors, // v = floor(factor * x + small_factor * x), stored = (v + 1 + 2 * offset) >> 1
  kKinked,     // v = floor(factor * x + (small_factor * x + copysign(kink, x))), stored as for kTwoFactors
  kWords,      // kOneFactor for results of 16 bits
  kSums,       // accumulators are written to `sums`
};

// Parameters of one accumulator. The fused multiply-add and the conversion both round down, so that `floor` in
// TileEpilogue is the floor of the exact value.
struct LaneParameters {
  std::int32_t bias[kLanes];
  float factor[kLanes];
  float second[kLanes];  // kSubnormal, kOneFactor, kWords: addend; otherwise small_factor
  float kink[kLanes];
};

// Residual add, see ResidualSpec. Only for tiles with three or four accumulators, and for tiles with one or two that
// store all channels.
struct TileResidual {
  const std::int32_t* factors;         // [kResidualBlock], the parameters of one vector as in ResidualRows
  const std::int32_t* offsets;         // [kResidualBlock]
  const std::uint8_t* const* others;   // [row]; output_offset is added
  int shift;
  std::uint8_t low, high;
  bool is_adjacent;                    // like TileArguments::is_adjacent, for `others`
};

struct TileArguments {
  const std::uint8_t* const* inputs;  // [segment][row], address of the segment
  std::size_t input_offset;           // added to each address
  std::size_t segments;
  std::size_t segment_bytes;          // a positive multiple of 4; for AMX, of chunk_bytes
  const std::uint32_t* skips;         // [segment], number of 4-byte steps of weights to skip after it
  const std::int8_t* weights;         // [segment][segment_bytes / 4][accumulator][lane][4]
  std::ptrdiff_t ahead;  // prefetch distance from the current weights in bytes; 64 of every 256 bytes are prefetched
  const LaneParameters* parameters;   // [accumulator]
  std::uint8_t* const* outputs;       // [row]
  std::size_t output_offset;          // added to each address
  std::int32_t* sums;                 // kSums: [row][kLanes * accumulators], in column order
  std::uint64_t mask;                 // one bit per channel, set if the channel is stored
  bool is_adjacent;                   // results of all rows are contiguous, 16 * accumulators results per row
  const std::uint8_t* lut;            // 256 entries, or null
  int offset;                         // only for kTwoFactors and kKinked
  int low, high;
  TileResidual residual;              // only for the kernels tile_..._residual
  // Only for AMX, whose tiles have one or two blocks of up to kAmxRows rows:
  int rows;
  int first_rows;                              // rows of the first block, which `inputs` belongs to
  const std::uint8_t* const* second_inputs;    // [segment][row], those of the second block
  std::size_t chunk_bytes;            // bytes of a segment that one instruction multiplies, at most kChunkBytes
  std::ptrdiff_t ahead_end;           // the bytes from `ahead` to this distance are prefetched for each chunk
};

using TileKernel = void (*)(const TileArguments&);

// Maximum number of rows of a tile. rows * accumulators <= 28 leaves one vector register for the broadcast bytes and up
// to three for weights; 12 general registers contain the addresses of the rows. A half accumulator (8 channels) follows
// the `full` ones.
constexpr int largest_rows(int full, bool half) {
  const int accumulators = full + (half ? 1 : 0);
  return accumulators == 4 ? 7 : accumulators == 3 ? 9 : 12;
}

// The instructions that multiply: dot products of vector registers, or products of the 1 KB tile registers of AMX.
enum class TileUnit { kVnni, kAmx };

constexpr int kAmxRows = 16;              // rows of a tile register
constexpr int kAmxAccumulators = 4;       // of a tile of AMX
constexpr std::size_t kChunkBytes = 64;   // bytes of a row of a tile register

constexpr int largest_rows(TileUnit unit, int full, bool half) {
  return unit == TileUnit::kAmx ? kAmxRows : largest_rows(full, half);
}

// Kernels of each epilogue. `full` is 1, 2, 3 or 4 without and 0 or 1 with a half accumulator; 1 <= rows <=
// largest_rows().
TileKernel tile_subnormal(int full, bool half, int rows);
TileKernel tile_one_factor(int full, bool half, int rows);
// Kernels with a residual add. `full` is 1, 2, 3 or 4; there is no half accumulator.
TileKernel tile_subnormal_residual(int full, int rows);
TileKernel tile_one_factor_residual(int full, int rows);
TileKernel tile_two_factors(int full, bool half, int rows);
TileKernel tile_kinked(int full, bool half, int rows);
TileKernel tile_words(int full, bool half, int rows);
TileKernel tile_sums(int full, bool half, int rows);

// Kernels for AMX, only in builds with TPUCONVERT_HAS_AMX; `accumulators` is 1 to 4. A kernel with a residual add exists
// for the epilogues kSubnormal and kOneFactor. Rows of a segment and block have a constant distance: that of the first
// two. Arrays of addresses of results have space for 2 * kAmxRows. The kernels need the tile registers in the state of
// configure_amx for the same blocks and chunk bytes.
TileKernel tile_amx(TileEpilogue epilogue, bool adds_residual, int accumulators, bool has_two_blocks);
void configure_amx(int first_rows, int second_rows, std::size_t chunk_bytes);
// Clears the tile registers, so that the operating system need not save them.
void release_amx();

}  // namespace tpuconvert::avx512
