// Residual add for AVX2.
#if defined(__x86_64__)

#include "int8/lanes/lanes_256.h"

namespace tpuconvert {
namespace {

using Lanes = Lanes256;

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/residual_tile.h"

namespace tpuconvert {

void residual_avx2(const ResidualRows& work) { residual(work); }

}  // namespace tpuconvert

#endif
