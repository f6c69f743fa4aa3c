// Residual add for AArch64.
#if defined(__aarch64__)

#include "int8/lanes/lanes_neon.h"

namespace tpuconvert {
namespace {

using Lanes = LanesNeon;

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/residual_tile.h"

namespace tpuconvert {

void residual_neon(const ResidualRows& work) { residual(work); }

}  // namespace tpuconvert

#endif
