#include "int8/tile/amx_kernel.h"

namespace tpuconvert::avx512 {
namespace {

// The operand of LDTILECFG, palette 1.
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfiguration) == 64, "LDTILECFG reads 64 bytes");

}  // namespace

TileKernel tile_amx(TileEpilogue epilogue, bool adds_residual, int accumulators, bool has_two_blocks) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal:
      return adds_residual ? amx_tile_of<TileEpilogue::kSubnormal, true>(accumulators, has_two_blocks)
                           : amx_tile_of<TileEpilogue::kSubnormal, false>(accumulators, has_two_blocks);
    case TileEpilogue::kOneFactor:
      return adds_residual ? amx_tile_of<TileEpilogue::kOneFactor, true>(accumulators, has_two_blocks)
                           : amx_tile_of<TileEpilogue::kOneFactor, false>(accumulators, has_two_blocks);
    case TileEpilogue::kTwoFactors: return amx_tile_of<TileEpilogue::kTwoFactors, false>(accumulators, has_two_blocks);
    case TileEpilogue::kKinked: return amx_tile_of<TileEpilogue::kKinked, false>(accumulators, has_two_blocks);
    case TileEpilogue::kWords: return amx_tile_of<TileEpilogue::kWords, false>(accumulators, has_two_blocks);
    case TileEpilogue::kSums: break;
  }
  return amx_tile_of<TileEpilogue::kSums, false>(accumulators, has_two_blocks);
}

void configure_amx(int first_rows, int second_rows, std::size_t chunk_bytes) {
  TileConfiguration configuration;
  const auto set = [&](int tile, int rows, std::size_t row_bytes) {
    configuration.rows[tile] = static_cast<std::uint8_t>(rows);
    configuration.row_bytes[tile] = static_cast<std::uint16_t>(row_bytes);
  };
  const int blocks = second_rows == 0 ? 1 : 2;
  for (int block = 0; block < blocks; ++block) {
    const int rows = block == 0 ? first_rows : second_rows;
    for (int i = 0; i < kSumTiles / blocks; ++i) set(block * (kSumTiles / blocks) + i, rows, kChunkBytes);
    set(kInputTile + block, rows, chunk_bytes);
  }
  for (int tile = first_weight_tile(blocks); tile < kTiles; ++tile) set(tile, static_cast<int>(chunk_bytes / 4), kChunkBytes);
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void release_amx() { asm volatile("tilerelease" : : : "memory"); }

}  // namespace tpuconvert::avx512
