// The convolution kernels for AVX512-VNNI.
#if defined(__x86_64__)

#include "int8/avx512_dense.h"
#include "int8/avx512_depthwise.h"
#include "int8/conv_int8.h"

namespace tpuconvert {

std::unique_ptr<ConvInt8Kernel> make_conv_int8_avx512vnni(const ConvInt8Spec& spec) {
  return spec.geometry.is_depthwise() ? avx512::make_depthwise(spec) : avx512::make_dense(spec);
}

}  // namespace tpuconvert

#endif
