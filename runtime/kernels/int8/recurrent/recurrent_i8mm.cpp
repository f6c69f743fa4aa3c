// Integer recurrent layers with vectors of 4 lanes and dot products of unsigned by signed bytes.
#if defined(__aarch64__)
#include "int8/lanes/lanes_neon.h"

namespace tpuconvert {
namespace {

struct Lanes : LanesNeon {
  using Item = std::uint8_t;
  using Weight = std::int8_t;
  static constexpr int kItems = 4, kTileRows = 2, kAccumulators = 8;

  static void store_items(Item* to, V x) { store_bytes(to, x); }
  static V dot(V sum, V x, V w) { return vusdotq_s32(sum, vreinterpretq_u8_s32(x), vreinterpretq_s8_s32(w)); }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/recurrent/recurrent_tile.h"

namespace tpuconvert {

const RecurrentInt8Kernels kRecurrentInt8I8mm = kKernels;

}  // namespace tpuconvert
#endif
