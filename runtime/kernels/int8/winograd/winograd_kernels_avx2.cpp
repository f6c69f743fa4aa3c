// The Winograd convolution with registers of 8 integers, for CPUs with AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "float32/unroll.h"
#include "int8/winograd/winograd_kernels.h"

namespace tpuconvert::winograd {
namespace {

inline __attribute__((always_inline)) void add_pairs(__m256i& sum, __m256i x, __m256i w) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(x, w));
}

#include "int8/winograd/lanes_256.inl"

}  // namespace

const Functions& functions_avx2() {
  static constexpr Functions kFunctions{kLanes, kVectors, true, largest_rows(kVectors), transform_input, multiply,
                                        transform_output};
  return kFunctions;
}

}  // namespace tpuconvert::winograd
#endif
