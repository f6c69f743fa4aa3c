// Integer recurrent layers with vectors of 16 lanes.
#if defined(__x86_64__)
#include "int8/lanes/lanes_512.h"

namespace tpuconvert {
namespace {

struct Lanes : Lanes512 {
  using Item = std::uint8_t;
  using Weight = std::int8_t;
  static constexpr int kItems = 4, kTileRows = 4, kAccumulators = 16;

  static void store_items(Item* to, V x) { store_bytes(to, x); }
  static V dot(V sum, V x, V w) { return _mm512_dpbusd_epi32(sum, x, w); }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8Avx512Vnni = kKernels;

}  // namespace tpuconvert
#endif
