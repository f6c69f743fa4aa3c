// The convolution kernels for AVX512-VNNI.
#include "int8/avx512_dense.h"
#include "int8/conv_int8.h"

namespace tpuconvert {

std::unique_ptr<ConvInt8Kernel> make_conv_int8_avx512vnni(const ConvInt8Spec& spec) { return avx512::make_dense(spec); }

}  // namespace tpuconvert
