// 256-bit kernels for CPUs that have the byte dot product only in AVX512-VNNI with AVX512-VL.
#if defined(__x86_64__)
#define PANELS_NAMESPACE avxvnni_evex
#define PANELS_BYTE_DOT "vpdpbusd"
#define PANELS_REGISTER "v"
#include "int8/conv/panel_kernels_256.inl"

namespace tpuconvert::panels {

const Functions& functions_avxvnni_evex() { return avxvnni_evex::kFunctions; }

}  // namespace tpuconvert::panels
#endif
