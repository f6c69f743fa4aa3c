// Dense and grouped convolution and matmul with register tiles for AVX512-VNNI.
#pragma once

#include <memory>

#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

std::unique_ptr<ConvInt8Kernel> make_conv_tiles(const ConvInt8Spec& spec);

}  // namespace tpuconvert::avx512
