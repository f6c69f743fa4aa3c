#include "int8/conv_int8.h"

namespace tpuconvert {

std::unique_ptr<ConvInt8Kernel> make_conv_int8_avx2(const ConvInt8Spec&) { return nullptr; }
std::unique_ptr<ConvInt8Kernel> make_conv_int8_avxvnni(const ConvInt8Spec&) { return nullptr; }

}  // namespace tpuconvert
