#if defined(__aarch64__)
#include "float32/vector_neon.h"

namespace tpuconvert {
namespace {

constexpr int kGroupSums = 4;

// Four words of eight 4-bit codes, the next one in the low-order bits.
struct Nibbles {
  uint32x4_t v;

  FLOAT_INLINE static Nibbles load(const std::uint8_t* from) { return {vreinterpretq_u32_u8(vld1q_u8(from))}; }
  FLOAT_INLINE Float value() const { return {vcvtq_f32_u32(vandq_u32(v, vdupq_n_u32(15)))}; }
  FLOAT_INLINE Float centered_value() const { return {vsubq_f32(value().v, vdupq_n_f32(8.0f))}; }
  FLOAT_INLINE void advance() { v = vshrq_n_u32(v, 4); }
};

}  // namespace
}  // namespace tpuconvert

// Uses the vector types above.
#include "float32/matmul/group_matmul_tile.h"

namespace tpuconvert {

const GroupMatmulKernels kGroupMatmulNeon{Float::kLanes, decode, dequantize};

}  // namespace tpuconvert
#endif
