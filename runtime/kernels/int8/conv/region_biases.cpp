#if defined(__x86_64__)

#include "int8/conv/region_biases.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {
namespace {

// Contribution of each tap to the accumulators of a panel if the tap is in the padding: [tap][column].
std::vector<std::int32_t> sums_of_padding(const PackedConv& packed, const Panel& panel, const std::uint8_t* padding) {
  alignas(64) static constexpr LaneParameters kNoBias[4] = {};
  static constexpr std::uint32_t kNoSkip = 0;
  const std::size_t width = static_cast<std::size_t>(panel.accumulators() * kLanes);
  const std::size_t taps = static_cast<std::size_t>(packed.layout.count);
  const std::size_t tap_bytes = packed.layout.bytes / 4 * panel.step_bytes();
  const TileKernel kernel = tile_sums(panel.full, panel.half, 1);
  alignas(64) std::int32_t found[4 * kLanes];
  TileArguments arguments{};
  arguments.inputs = &padding;
  arguments.segments = 1;
  arguments.segment_bytes = packed.layout.bytes;
  arguments.skips = &kNoSkip;
  arguments.parameters = kNoBias;
  arguments.sums = found;
  std::vector<std::int32_t> sums(taps * width);
  for (std::size_t i = 0; i < taps * static_cast<std::size_t>(packed.layout.copies); ++i) {
    arguments.weights = packed.weights.as<std::int8_t>() + panel.weights + i * tap_bytes;
    kernel(arguments);
    std::int32_t* to = sums.data() + i % taps * width;
    for (std::size_t column = 0; column < width; ++column) to[column] += found[column];
  }
  return sums;
}

}  // namespace

AlignedBytes parameters_of_regions(PackedConv* packed, const Windows& windows) {
  const std::vector<RegionWindows>& regions = windows.regions();
  if (regions.size() == 1) return std::move(packed->parameters);
  const std::size_t groups = packed->lane_groups();
  AlignedBytes parameters = AlignedBytes::part(regions.size() * groups * sizeof(LaneParameters));
  for (std::size_t region = 0; region < regions.size(); ++region)
    std::memcpy(parameters.as<LaneParameters>() + region * groups, packed->parameters.data(), groups * sizeof(LaneParameters));
  for (const Panel& panel : packed->panels) {
    const std::vector<std::int32_t> sums = sums_of_padding(*packed, panel, windows.padding());
    for (std::size_t region = 0; region < regions.size(); ++region) {
      LaneParameters* lanes = parameters.as<LaneParameters>() + region * groups + panel.parameters;
      regions[region].for_missing_taps([&](int tap) {
        const std::int32_t* from = sums.data() + tap * panel.accumulators() * kLanes;
        for (int column = 0; column < panel.columns; ++column) {
          const int lane = panel.lane_of(column);
          std::int32_t& bias = lanes[lane / kLanes].bias[lane % kLanes];
          // Unsigned arithmetic wraps modulo 2^32, like the accumulators.
          bias = static_cast<std::int32_t>(static_cast<std::uint32_t>(bias) + static_cast<std::uint32_t>(from[column]));
        }
      });
    }
  }
  packed->parameters = {};
  return parameters;
}

}  // namespace tpuconvert::avx512

#endif
