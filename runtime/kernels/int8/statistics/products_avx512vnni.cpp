#ifdef __AVX512VNNI__
#include "int8/statistics/products.h"
#include "int8/tile/lanes.h"

namespace tpuconvert {
namespace {

using avx512::dot;
using avx512::unrolled;

constexpr int kRows = 8, kLanes = 16;

// With 3 vectors: 24 accumulators, 3 vectors and a broadcast of the 32 registers.
template <int Vectors>
void add(const std::uint32_t* left, const std::uint32_t* right, std::int64_t words, std::int32_t* to,
         std::int64_t stride) {
  __m512i sum[kRows * Vectors];
  unrolled<kRows * Vectors>([&](auto i) TPU_INLINED { sum[i] = _mm512_setzero_si512(); });
  for (std::int64_t word = 0; word < words; ++word, left += kRows, right += Vectors * kLanes) {
    __m512i b[Vectors];
    unrolled<Vectors>([&](auto j) TPU_INLINED { b[j] = _mm512_loadu_si512(right + j * kLanes); });
    unrolled<kRows>([&](auto i) TPU_INLINED {
      const __m512i a = _mm512_set1_epi32(static_cast<int>(left[i]));
      unrolled<Vectors>([&](auto j) TPU_INLINED { dot(sum[decltype(i)::value * Vectors + decltype(j)::value], b[j], a); });
    });
  }
  unrolled<kRows * Vectors>([&](auto i) TPU_INLINED {
    std::int32_t* at = to + i / Vectors * stride + i % Vectors * kLanes;
    _mm512_storeu_si512(at, _mm512_add_epi32(_mm512_loadu_si512(at), sum[i]));
  });
}

}  // namespace

const ProductKernels kProductsAvx512Vnni{kRows, 3 * kLanes, kLanes, true, add<3>, add<1>};

}  // namespace tpuconvert
#endif
