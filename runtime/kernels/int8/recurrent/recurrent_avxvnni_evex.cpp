// Integer recurrent layers with vectors of 8 lanes, for CPUs with AVX512-VNNI and VL.
#if defined(__x86_64__)
#include "int8/lanes/lanes_256.h"

namespace tpuconvert {
namespace {

struct Lanes : Lanes256 {
  using Item = std::uint8_t;
  using Weight = std::int8_t;
  static constexpr int kItems = 4, kTileRows = 2, kAccumulators = 8;

  static void store_items(Item* to, V x) { store_bytes(to, x); }
  static V dot(V sum, V x, V w) { return _mm256_dpbusd_epi32(sum, x, w); }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8AvxVnniEvex = kKernels;

}  // namespace tpuconvert
#endif
