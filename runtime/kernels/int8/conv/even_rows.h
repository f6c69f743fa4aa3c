// Rows of a tile with a constant distance, as the tile registers of AMX load them.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it contains plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/conv/window_walk.h"

namespace tpuconvert::avx512 {

// Bytes from one copied row to the next.
constexpr std::size_t copied_row_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Copies the rows of the segments whose addresses, [segment][row], do not have a constant distance, and replaces the
// addresses by those of the copies. `inputs` has kWalkLanes more elements. A row has `bytes` bytes; `copies` has space for
// copied_row_bytes(bytes) for every row of every segment.
void make_rows_even(const std::uint8_t** inputs, std::size_t segments, int rows, std::size_t bytes, std::uint8_t* copies);

// Results of the next tile, and residual operands.
struct TileAddresses {
  std::uint8_t* outputs[2 * kWalkLanes];
  const std::uint8_t* others[2 * kWalkLanes];
};

// Copies the addresses of a walk to row `first` <= kWalkLanes. Results with x >= width are not stored: they have the
// address `unused`.
void place_results(const Walk& walk, int width, std::uint8_t* unused, int first, TileAddresses* to);

}  // namespace tpuconvert::avx512
