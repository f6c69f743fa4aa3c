// The 16-bit convolution with vectors of 8 lanes, for CPUs with AVX-VNNI.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

inline __m256i add_pairs(__m256i sum, __m256i x, __m256i w) { return _mm256_dpwssd_avx_epi32(sum, x, w); }

#include "int16/lanes_256.inl"

#include "int16/conv_kernels.inl"

}  // namespace

const Functions& functions_avxvnni_vex() {
  static constexpr Functions kFunctions{Lanes::kRows, multiply, depthwise, expand_words, expand_bytes};
  return kFunctions;
}

}  // namespace tpuconvert::int16
#endif
