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

TileKernel tile_amx(TileEpilogue epilogue, bool adds_residual, int accumulators) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal:
      return adds_residual ? amx_tile_of<TileEpilogue::kSubnormal, true>(accumulators)
                           : amx_tile_of<TileEpilogue::kSubnormal, false>(accumulators);
    case TileEpilogue::kOneFactor:
      return adds_residual ? amx_tile_of<TileEpilogue::kOneFactor, true>(accumulators)
                           : amx_tile_of<TileEpilogue::kOneFactor, false>(accumulators);
    case TileEpilogue::kTwoFactors: return amx_tile_of<TileEpilogue::kTwoFactors, false>(accumulators);
    case TileEpilogue::kKinked: return amx_tile_of<TileEpilogue::kKinked, false>(accumulators);
    case TileEpilogue::kSums: break;
  }
  return amx_tile_of<TileEpilogue::kSums, false>(accumulators);
}

void configure_amx(int rows, std::size_t chunk_bytes) {
  TileConfiguration configuration;
  for (int tile = 0; tile < kWeightTile + kWeightTiles; ++tile) {
    const bool has_weights = tile >= kWeightTile;
    configuration.row_bytes[tile] = static_cast<std::uint16_t>(tile == kInputTile ? chunk_bytes : kChunkBytes);
    configuration.rows[tile] = static_cast<std::uint8_t>(has_weights ? static_cast<int>(chunk_bytes / 4) : rows);
  }
  asm volatile("ldtilecfg %0" : : "m"(configuration));
}

void release_amx() { asm volatile("tilerelease" : : : "memory"); }

}  // namespace tpuconvert::avx512
