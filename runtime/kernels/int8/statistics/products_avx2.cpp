#ifdef __AVX2__
#include <immintrin.h>

#include "int8/statistics/products.h"

namespace tpuconvert {
namespace {

constexpr int kRows = 4, kLanes = 8;  // 4 rows and 2 vectors: 8 accumulators, 2 vectors and 4 broadcasts

template <int Vectors>
void add(const std::uint32_t* left, const std::uint32_t* right, std::int64_t words, std::int32_t* to,
         std::int64_t stride) {
  __m256i sum[kRows][Vectors];
  for (auto& row : sum)
    for (auto& vector : row) vector = _mm256_setzero_si256();
  for (std::int64_t word = 0; word < words; ++word, left += kRows, right += Vectors * kLanes) {
    for (int i = 0; i < kRows; ++i) {
      const __m256i a = _mm256_set1_epi32(static_cast<int>(left[i]));
      for (int j = 0; j < Vectors; ++j) {
        const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(right + j * kLanes));
        sum[i][j] = _mm256_add_epi32(sum[i][j], _mm256_madd_epi16(a, b));
      }
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < Vectors; ++j) {
      auto* at = reinterpret_cast<__m256i*>(to + i * stride + j * kLanes);
      _mm256_storeu_si256(at, _mm256_add_epi32(_mm256_loadu_si256(at), sum[i][j]));
    }
}

}  // namespace

const ProductKernels kProductsAvx2{kRows, 2 * kLanes, kLanes, false, add<2>, add<1>};

}  // namespace tpuconvert
#endif
