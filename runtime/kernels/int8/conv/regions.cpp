#if defined(__x86_64__)

#include "int8/conv/regions.h"

#include <algorithm>
#include <cstdint>

namespace tpuconvert::avx512 {
namespace {

// Largest number of results per side with windows that leave the input. An axis with more is not divided.
constexpr std::int64_t kMaxEdge = 16;
constexpr int kTileCycles = 70;        // cycles of a tile in addition to its multiplications
// A tile with fewer rows takes as long as one with this many, because loading the weights limits it.
constexpr int kLeastRows = 2;

// Adjacent results along one axis that need the same taps.
struct Run {
  int first, count, tap, taps;
};

struct Axis {
  int results, stride, pad, taps, dilation, extent;

  Run whole() const { return {0, results, 0, taps}; }

  // The taps of one result that are inside the input, or an arbitrary tap if there is none.
  Run at(int result) const {
    const std::int64_t from = std::int64_t{result} * stride - pad;  // input coordinate of the first tap
    const std::int64_t first = from >= 0 ? 0 : (-from + dilation - 1) / dilation;
    const std::int64_t end = from >= extent ? 0 : std::min<std::int64_t>(taps, (extent - 1 - from) / dilation + 1);
    if (first >= end) return {result, 1, 0, 1};
    return {result, 1, static_cast<int>(first), static_cast<int>(end - first)};
  }

  std::vector<Run> runs() const {
    const std::int64_t room = std::int64_t{extent} - 1 + pad - std::int64_t{taps - 1} * dilation;
    const std::int64_t first_full = std::min<std::int64_t>(results, (std::int64_t{pad} + stride - 1) / stride);
    const std::int64_t end_full = room < 0 ? 0 : std::min<std::int64_t>(results, room / stride + 1);
    if (end_full <= first_full || first_full > kMaxEdge || results - end_full > kMaxEdge) return {whole()};
    std::vector<Run> runs;
    const auto add = [&runs](const Run& run) {
      if (!runs.empty() && runs.back().tap == run.tap && runs.back().taps == run.taps)
        runs.back().count += run.count;
      else
        runs.push_back(run);
    };
    for (int result = 0; result < first_full; ++result) add(at(result));
    add({static_cast<int>(first_full), static_cast<int>(end_full - first_full), 0, taps});
    for (int result = static_cast<int>(end_full); result < results; ++result) add(at(result));
    return runs;
  }
};

std::int64_t cycles_of(int batch, const Region& region, const TileCosts& costs) {
  const std::int64_t results = std::int64_t{batch} * region.height * region.width;
  const std::int64_t tiles = (results + costs.rows - 1) / costs.rows;
  const std::int64_t steps = std::int64_t{region.taps_h} * region.taps_w * costs.tap_steps;
  return std::max(results, kLeastRows * tiles) * costs.accumulators * steps + tiles * kTileCycles;
}

Region region_of(const Run& rows, const Run& columns) {
  return {rows.first, columns.first, rows.count, columns.count, rows.tap, columns.tap, rows.taps, columns.taps};
}

}  // namespace

std::vector<Region> regions_of(const ConvGeometry& g, const TileCosts& costs) {
  const Axis vertical{g.out_height, g.stride_h, g.pad_top, g.kernel_h, g.dilation_h, g.height};
  const Axis horizontal{g.out_width, g.stride_w, g.pad_left, g.kernel_w, g.dilation_w, g.width};
  const std::vector<Run> column_runs = horizontal.runs();
  std::vector<Region> divided;
  std::int64_t divided_cycles = 0;
  for (const Run& rows : vertical.runs()) {
    const Region line = region_of(rows, horizontal.whole());
    const std::int64_t line_cycles = cycles_of(g.batch, line, costs);
    std::int64_t cycles = 0;
    for (const Run& columns : column_runs) cycles += cycles_of(g.batch, region_of(rows, columns), costs);
    divided_cycles += std::min(cycles, line_cycles);
    if (line_cycles <= cycles) {
      divided.push_back(line);
    } else {
      for (const Run& columns : column_runs) divided.push_back(region_of(rows, columns));
    }
  }
  const Region whole = region_of(vertical.whole(), horizontal.whole());
  if (cycles_of(g.batch, whole, costs) <= divided_cycles) return {whole};
  const auto taps_of = [](const Region& region) { return region.taps_h * region.taps_w; };
  std::stable_sort(divided.begin(), divided.end(),
                   [&](const Region& a, const Region& b) { return taps_of(a) < taps_of(b); });
  return divided;
}

}  // namespace tpuconvert::avx512

#endif
