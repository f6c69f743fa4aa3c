#ifdef __AVX512F__
namespace tpuconvert {
namespace {

constexpr int kBlock = 32;

}  // namespace
}  // namespace tpuconvert

// Uses kBlock.
#include "float32/statistics/statistics_tile.h"

namespace tpuconvert {

const StatisticsKernels kStatisticsAvx512{run_summarize, run_bins};

}  // namespace tpuconvert
#endif
