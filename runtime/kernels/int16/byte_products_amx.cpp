// The 16-bit convolution as products of bytes for AMX.
#include "int8/tile/amx_kernel.h"

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

#include "int16/lanes_512.inl"

#include "int16/finish.inl"

#include "int16/byte_finish.inl"

using avx512::kAmxRows;
using avx512::load_tile;
using avx512::multiply_tiles;
using avx512::store_tile;
using avx512::zero_tile;

// Tile registers, in the state of configure_amx: 2 * block contains the sums `top` of a block of rows, the next one
// `middle`. Inputs and weights follow.
constexpr int kInputs = avx512::kInputTile, kHigh = kInputs + 2, kLow = kHigh + 1;
constexpr std::ptrdiff_t kStepBytes = 128;  // of weights per 4 bytes of depth

template <int Blocks, bool IsWide, Store Kind, Second Again>
__attribute__((noinline)) void multiply_panel(const ByteTile& tile, int panel) {
  unrolled<Blocks>([&](auto block) __attribute__((always_inline)) {
    zero_tile<2 * block>();
    load_tile<2 * block + 1>(tile.panels[panel].bias, 0);
  });
  const int rows[2] = {tile.first_rows, tile.rows - tile.first_rows};
  const std::uint8_t* starts[2] = {tile.pixels[0], tile.pixels[Blocks == 2 ? tile.first_rows : 0]};
  std::ptrdiff_t pitch[2];
  unrolled<Blocks>([&](auto block) __attribute__((always_inline)) {
    const std::uint8_t* const* pixels = tile.pixels + block * tile.first_rows;
    pitch[block] = rows[block] == 1 ? 0 : pixels[1] - pixels[0];
  });
  const std::int8_t* weights = tile.weights + panel * tile.panel_bytes;
  for (int index = 0; index < tile.segment_count; ++index) {
    const Segment segment = tile.segments[index];
    for (std::ptrdiff_t at = segment.offset; at < segment.offset + segment.count; at += tile.chunk) {
      load_tile<kHigh>(weights, kStepBytes);
      load_tile<kLow>(weights + 64, kStepBytes);
      weights += tile.chunk / 4 * kStepBytes;
      unrolled<Blocks>([&](auto block) __attribute__((always_inline)) {
        load_tile<kInputs + block>(starts[block] + at, pitch[block]);
        multiply_tiles<2 * block, kInputs + block, kHigh>();
        multiply_tiles<2 * block + 1, kInputs + block, kLow>();
      });
      if constexpr (IsWide) {
        unrolled<Blocks>([&](auto block) __attribute__((always_inline)) {
          load_tile<kInputs + block>(starts[block] + tile.low_plane + at, pitch[block]);
          multiply_tiles<2 * block + 1, kInputs + block, kHigh>();
        });
      }
    }
  }
  alignas(64) std::int32_t sums[Blocks * kAmxRows][2][kPanel];  // top and middle of a row
  unrolled<Blocks>([&](auto block) __attribute__((always_inline)) {
    std::int32_t(*to)[2][kPanel] = sums + block * tile.first_rows;
    store_tile<2 * block>(to[0][0], kStepBytes);
    store_tile<2 * block + 1>(to[0][1], kStepBytes);
  });
  const Panel& own = tile.panels[panel];
  const Finish finish = *tile.finish;  // a local copy, so that stores do not force reloads
  const std::size_t offset = tile.offset + static_cast<std::size_t>(panel * kPanel) * size_of(Kind);
  for (int row = 0; row < tile.rows; ++row)
    finish_bytes<Kind, Again>(Lanes::load(sums[row][0]), Lanes::load(sums[row][1]), own, finish,
                              tile.columns - panel * kPanel, tile.outputs[row] + offset);
}

template <bool IsWide, Store Kind, Second Again>
void multiply_tile(const ByteTile& tile) {
  for (int panel = 0; panel * kPanel < tile.columns; ++panel) {
    if (tile.rows > tile.first_rows) {
      multiply_panel<2, IsWide, Kind, Again>(tile, panel);
    } else {
      multiply_panel<1, IsWide, Kind, Again>(tile, panel);
    }
  }
}

}  // namespace

const ByteFunctions& byte_functions_amx() {
  static constexpr ByteFunctions kFunctions{2 * kAmxRows, true, multiply, split_words};
  return kFunctions;
}

}  // namespace tpuconvert::int16
