// Dense and grouped convolution, and matrix products, by register tiles of AVX512-VNNI.
#pragma once

#include <memory>

#include "int8/conv_int8.h"

namespace tpuconvert::avx512 {

std::unique_ptr<ConvInt8Kernel> make_dense(const ConvInt8Spec& spec);

}  // namespace tpuconvert::avx512
