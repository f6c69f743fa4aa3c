// 256-bit kernels with 16-bit multiplications (vpmaddwd), which are exact for every weight in -255..255.
#if defined(__x86_64__)
#define PANELS_NAMESPACE avx2
#define PANELS_REGISTER "x"
#include "int8/conv/panel_kernels_256.inl"

namespace tpuconvert::panels {

const Functions& functions_avx2() { return avx2::kFunctions; }

}  // namespace tpuconvert::panels
#endif
