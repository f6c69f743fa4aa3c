// Dense and grouped convolution and matmul with register tiles for AVX512-VNNI and AMX.
#pragma once

#include <memory>

#include "int8/conv/conv.h"
#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

std::unique_ptr<ConvInt8Kernel> make_conv_tiles(const ConvInt8Spec& spec, TileUnit unit);

}  // namespace tpuconvert::avx512
