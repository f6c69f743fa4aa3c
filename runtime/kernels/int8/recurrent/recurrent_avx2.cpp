// Integer recurrent layers with vectors of 8 lanes and dot products of 16-bit pairs.
#ifdef __AVX2__
#include "int8/lanes/lanes_256.h"

namespace tpuconvert {
namespace {

struct Lanes : Lanes256 {
  using Item = std::int16_t;
  using Weight = std::int16_t;
  static constexpr int kItems = 2, kTileRows = 2, kAccumulators = 8;

  static void store_items(Item* to, V x) { store_words(to, x); }
  static V dot(V sum, V x, V w) { return _mm256_add_epi32(sum, _mm256_madd_epi16(x, w)); }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8Avx2 = kKernels;

}  // namespace tpuconvert
#endif
