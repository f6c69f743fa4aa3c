namespace tpuconvert {
namespace {

constexpr int kBlock = 16;

}  // namespace
}  // namespace tpuconvert

// Uses kBlock.
#include "float32/statistics/bins_tile.h"
#include "float32/statistics/statistics_tile.h"

namespace tpuconvert {

const StatisticsKernels kStatisticsScalar{run_summarize, run_bins};

}  // namespace tpuconvert
