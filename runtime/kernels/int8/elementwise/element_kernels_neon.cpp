// Element-wise kernels for AArch64. The loops of element_loops.h are vectorized by the compiler.
#if defined(__aarch64__)

#include "int8/lanes/lanes_neon.h"

namespace tpuconvert {
namespace {

struct Vector : LanesNeon {
  static constexpr int kPixels = kBytes;
  static void interleave(const std::uint8_t* const* planes, int first, std::uint8_t* to) {
    const auto plane = [&](int k) { return load_register(planes[k] + first); };
    const uint8x16x3_t pixels = {{plane(0), plane(1), plane(2)}};
    vst3q_u8(to, pixels);
  }
};

}  // namespace
}  // namespace tpuconvert

// Uses `Vector`.
#include "int8/elementwise/element_tile.h"

namespace tpuconvert {
namespace {

// Four multiply-shift instructions rescale four lanes exactly; a float form would need as many.
constexpr decltype(ElementKernels::residual_float) kResidualFloat = nullptr;

void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  for (int i = 0; i < count; ++i) out[i] = table.entries[from[i]];
}

// A lookup gives 0 for an index out of range, an extending lookup keeps the byte. The index is moved by 64 for each
// quarter of the table.
void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  const uint8x16x4_t t0 = vld1q_u8_x4(table), t1 = vld1q_u8_x4(table + 64), t2 = vld1q_u8_x4(table + 128),
                     t3 = vld1q_u8_x4(table + 192);
  const Bytes quarter = Vector::broadcast_byte(64);
  std::int64_t i = 0;
  for (; i + Vector::kBytes <= count; i += Vector::kBytes) {
    const Bytes x = Vector::load_register(from + i);
    const Bytes second = vsubq_u8(x, quarter), third = vsubq_u8(second, quarter);
    const Bytes result = vqtbx4q_u8(vqtbx4q_u8(vqtbl4q_u8(t0, x), t1, second), t2, third);
    Vector::store_register(to + i, vqtbx4q_u8(result, t3, vsubq_u8(third, quarter)));
  }
  for (; i < count; ++i) to[i] = table[from[i]];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_neon() { return kKernels; }

}  // namespace tpuconvert

#endif
