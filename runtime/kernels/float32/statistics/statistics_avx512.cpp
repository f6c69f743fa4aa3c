#ifdef __AVX512F__
namespace tpuconvert {
namespace {

constexpr int kBlock = 32;

}  // namespace
}  // namespace tpuconvert

// Uses kBlock.
#include "float32/statistics/statistics_tile.h"
#include "float32/vector_avx512.h"

namespace tpuconvert {
namespace {

// Compresses in a register: a compressing store is slow on some processors.
std::int64_t run_bins(const float* x, std::int64_t n, float scale, std::int32_t* to) {
  const __m512 factor = _mm512_set1_ps(scale), last = _mm512_set1_ps(static_cast<float>(kMagnitudeBins - 1));
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; i += 16) {
    const __mmask16 used = n - i < 16 ? static_cast<__mmask16>((1u << (n - i)) - 1) : static_cast<__mmask16>(0xffff);
    const __m512 value = _mm512_maskz_loadu_ps(used, x + i);
    const __m512 magnitude = _mm512_min_ps(_mm512_abs_ps(_mm512_mul_ps(value, factor)), last);
    const __m512i bins = _mm512_cvttps_epi32(magnitude);
    const __mmask16 counted = _mm512_test_epi32_mask(bins, bins);
    _mm512_storeu_si512(to + count, _mm512_maskz_compress_epi32(counted, bins));
    count += __builtin_popcount(counted);
  }
  return count;
}

}  // namespace

const StatisticsKernels kStatisticsAvx512{run_summarize, run_bins};

}  // namespace tpuconvert
#endif
