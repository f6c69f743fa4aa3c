// 256-bit kernels for CPUs with AVX-VNNI.
#if defined(__x86_64__)
#define PANELS_NAMESPACE avxvnni_vex
#define PANELS_BYTE_DOT "%{vex%} vpdpbusd"
#define PANELS_REGISTER "x"
#include "int8/conv/panel_kernels_256.inl"

namespace tpuconvert::panels {

const Functions& functions_avxvnni_vex() { return avxvnni_vex::kFunctions; }

}  // namespace tpuconvert::panels
#endif
