// Integer recurrent layers with vectors of 4 lanes and products of 16-bit pairs.
#if defined(__aarch64__)
#include "int8/lanes/lanes_neon.h"

namespace tpuconvert {
namespace {

struct Lanes : LanesNeon {
  using Item = std::int16_t;
  using Weight = std::int16_t;
  static constexpr int kItems = 2, kTileRows = 2, kAccumulators = 8;

  static void store_items(Item* to, V x) { store_words(to, x); }
  static V dot(V sum, V x, V w) {
    const V first = vmlal_s16(sum, vmovn_s32(x), vmovn_s32(w));
    return vmlal_s16(first, vshrn_n_s32(x, 16), vshrn_n_s32(w, 16));
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8Neon = kKernels;

}  // namespace tpuconvert
#endif
