// The 16-bit convolution with vectors of 16 lanes.
#if defined(__x86_64__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

#include "int16/lanes_512.inl"

#include "int16/conv_kernels.inl"

}  // namespace

const Functions& functions_avx512vnni() {
  static constexpr Functions kFunctions{Lanes::kRows, multiply, depthwise, expand_words, expand_bytes};
  return kFunctions;
}

}  // namespace tpuconvert::int16
#endif
