// Kernels, cache blocking and prefetch distances of the convolution with register tiles. Only for conv_tiles.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "int8/conv/tile_packing.h"
#include "int8/conv/windows.h"
#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

// bytes of weights that stay in the second-level cache beside activations
constexpr std::size_t kCacheShare = 512 * 1024;
constexpr std::size_t kGroupBytes = 320 * 1024;  // bytes of weights that are used for all rows before the next weights
constexpr std::int64_t kSharingTiles = 2;             // tiles that prefetch the next weights together
constexpr std::ptrdiff_t kSingleDistance = 16 * 1024;  // prefetch distance of a single tile
constexpr std::size_t kFirstLevelWeights = 32 * 1024;  // weights of at most this size are not prefetched

// `rows` are blocks of rows for AMX.
inline TileKernel tile_kernel(const Panel& panel, TileUnit unit, int rows, bool adds_residual) {
#if defined(TPUCONVERT_HAS_AMX)
  if (unit == TileUnit::kAmx) return tile_amx(panel.epilogue, adds_residual, panel.full, rows == 2);
#endif
  static_cast<void>(unit);
  if (adds_residual)
    return panel.epilogue == TileEpilogue::kSubnormal ? tile_subnormal_residual(panel.full, rows)
                                              : tile_one_factor_residual(panel.full, rows);
  switch (panel.epilogue) {
    case TileEpilogue::kSubnormal: return tile_subnormal(panel.full, panel.half, rows);
    case TileEpilogue::kOneFactor: return tile_one_factor(panel.full, panel.half, rows);
    case TileEpilogue::kTwoFactors: return tile_two_factors(panel.full, panel.half, rows);
    case TileEpilogue::kKinked: return tile_kinked(panel.full, panel.half, rows);
    case TileEpilogue::kWords: return tile_words(panel.full, panel.half, rows);
    case TileEpilogue::kSums: break;
  }
  return tile_sums(panel.full, panel.half, rows);
}

// Prefetch distances of the first byte and after the last one.
struct Distance {
  std::ptrdiff_t first, end;
};

// Adjacent panels of equal shape. Their weights are used for all rows of a part before those of the next run.
struct PanelRun {
  int first, last;  // `last` is exclusive
};

// Tiles of AMX have too many rows for narrow regions at the edges.
inline Windows windows_of(const ConvInt8Spec& spec, const PackedConv& packed, TileUnit unit) {
  if (unit == TileUnit::kAmx) return {spec, packed.layout, nullptr};
  const Panel& panel = packed.panels.front();
  const TileCosts costs{largest_rows(panel.full, panel.half), panel.accumulators(),
                        static_cast<int>(packed.layout.bytes / 4) * packed.layout.copies};
  return {spec, packed.layout, &costs};
}

inline std::vector<PanelRun> runs_of(const std::vector<Panel>& panels, std::size_t weight_bytes) {
  const std::size_t limit = weight_bytes > kCacheShare ? kGroupBytes : weight_bytes;
  std::vector<PanelRun> runs;
  std::size_t bytes = 0;
  for (int i = 0; i < static_cast<int>(panels.size()); ++i) {
    const Panel& panel = panels[static_cast<std::size_t>(i)];
    const Panel* before = i == 0 ? nullptr : &panels[static_cast<std::size_t>(i - 1)];
    if (before == nullptr || before->full != panel.full || before->half != panel.half ||
        bytes + panel.weight_bytes > limit) {
      runs.push_back({i, i});
      bytes = 0;
    }
    bytes += panel.weight_bytes;
    runs.back().last = i + 1;
  }
  return runs;
}

// Prefetch distances of tile number `tile` of `tiles` for AMX, where no later tile uses the weights of the run. The last
// tiles prefetch equal shares of every chunk of the next weights. A single tile reads the weights as fast as they arrive,
// so that it prefetches the next bytes.
inline Distance amx_ahead_of(const PackedConv& packed, const PanelRun& run, std::int64_t tiles, std::int64_t tile) {
  const std::int64_t left = tiles - 1 - tile;
  const auto sharing = std::min<std::int64_t>(kSharingTiles, tiles);
  if (left >= sharing || packed.weights.size() <= kFirstLevelWeights) return {0, 0};
  const Panel& first = packed.panels[static_cast<std::size_t>(run.first)];
  const Panel& last = packed.panels[static_cast<std::size_t>(run.last - 1)];
  const auto bytes = static_cast<std::ptrdiff_t>(last.weights + last.weight_bytes - first.weights);
  const auto chunk = static_cast<std::ptrdiff_t>(packed.layout.chunk / 4 * first.step_bytes());
  if (sharing == 1) return {kSingleDistance, kSingleDistance + chunk};
  const auto share = [&](std::int64_t part) { return static_cast<std::ptrdiff_t>(chunk / 64 * part / sharing * 64); };
  return {bytes + share(left), bytes + share(left + 1)};
}

// A range of the results of one region, counted over all images.
struct Results {
  std::size_t region;
  std::int64_t first, last;  // `last` is exclusive
  bool are_last;             // no later results use the same weights
};

}  // namespace tpuconvert::avx512
