// Residual add for AVX512-VNNI.
#if defined(__x86_64__)

#include "int8/lanes/lanes_512.h"

namespace tpuconvert {
namespace {

struct Lanes : Lanes512 {
  template <bool kIsPair>
  static void add_products(V (&sums)[kVectors], Pairs x, Pairs factors) {
    sums[0] = _mm512_dpwssd_epi32(sums[0], x, factors);
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/residual_tile.h"

namespace tpuconvert {

void residual_avx512(const ResidualRows& work) { residual(work); }

}  // namespace tpuconvert

#endif
