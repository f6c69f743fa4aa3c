// Panel kernels of baseline AArch64: widening multiply-adds of 16-bit words, which are exact for every weight in
// -255..255.
#if defined(__aarch64__)
#include "int8/conv/panel_kernels_neon.h"

namespace tpuconvert::panels {
namespace {

// Adds the products of the first `Lanes` words of x with the words of 16 columns each.
template <int Rows, int Lanes>
PANELS_INLINED inline void accumulate(int32x4_t (&sum)[Rows][4], const int16x8_t (&x)[Rows], const std::uint8_t* weights) {
  for_weights<2 * Lanes>(weights, [&](auto i, uint8x16_t bytes) PANELS_INLINED {
    const int16x8_t w = vreinterpretq_s16_u8(bytes);
    constexpr int kHalf = i % 2 * 2;
    unrolled<Rows>([&](auto row) PANELS_INLINED {
      sum[row][kHalf] = vmlal_laneq_s16(sum[row][kHalf], vget_low_s16(w), x[row], i / 2);
      sum[row][kHalf + 1] = vmlal_high_laneq_s16(sum[row][kHalf + 1], w, x[row], i / 2);
    });
  });
}

template <int Rows>
void multiply(const std::uint8_t* const* pixels, std::ptrdiff_t taps, std::ptrdiff_t tap_bytes, std::ptrdiff_t offset,
              const std::uint8_t* weights, std::int32_t* sums) {
  int32x4_t sum[Rows][4];
  unrolled<Rows>([&](auto row) PANELS_INLINED { sum[row][0] = sum[row][1] = sum[row][2] = sum[row][3] = vdupq_n_s32(0); });
  for (std::ptrdiff_t tap = 0; tap < taps; ++tap, pixels += Rows) {
    const std::uint8_t* from[Rows];
    unrolled<Rows>([&](auto row) PANELS_INLINED { from[row] = pixels[row] + offset; });
    std::ptrdiff_t at = 0;
    for (; at + 16 <= tap_bytes; at += 16, weights += 8 * 2 * kColumns) {
      int16x8_t x[Rows];
      unrolled<Rows>([&](auto row) PANELS_INLINED { x[row] = vreinterpretq_s16_u8(vld1q_u8(from[row] + at)); });
      accumulate<Rows, 8>(sum, x, weights);
    }
    for (; at < tap_bytes; at += 4, weights += 2 * 2 * kColumns) {
      int16x8_t x[Rows];
      unrolled<Rows>([&](auto row) PANELS_INLINED {
        x[row] = vreinterpretq_s16_s32(vld1q_dup_s32(reinterpret_cast<const std::int32_t*>(from[row] + at)));
      });
      accumulate<Rows, 2>(sum, x, weights);
    }
  }
  unrolled<Rows>([&](auto row) PANELS_INLINED {
    unrolled<4>([&](auto i) PANELS_INLINED { vst1q_s32(sums + row * kColumns + 4 * i, sum[row][i]); });
  });
}

// `Count` of the rows, which share the loads of the weights.
template <int Count>
void depthwise_rows(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                    const std::uint8_t* weights, std::int32_t* sums) {
  int32x4_t sum[Count][4];
  unrolled<Count>([&](auto row) PANELS_INLINED { sum[row][0] = sum[row][1] = sum[row][2] = sum[row][3] = vdupq_n_s32(0); });
  for (std::ptrdiff_t tap = 0; tap < taps; ++tap, weights += 2 * kColumns, pixels += rows) {
    const int16x8_t w0 = vreinterpretq_s16_u8(vld1q_u8(weights)), w1 = vreinterpretq_s16_u8(vld1q_u8(weights + 16));
    unrolled<Count>([&](auto row) PANELS_INLINED {
      const uint8x16_t bytes = vld1q_u8(pixels[row] + offset);
      const int16x8_t x0 = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
      const int16x8_t x1 = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
      sum[row][0] = vmlal_s16(sum[row][0], vget_low_s16(x0), vget_low_s16(w0));
      sum[row][1] = vmlal_high_s16(sum[row][1], x0, w0);
      sum[row][2] = vmlal_s16(sum[row][2], vget_low_s16(x1), vget_low_s16(w1));
      sum[row][3] = vmlal_high_s16(sum[row][3], x1, w1);
    });
  }
  unrolled<Count>([&](auto row) PANELS_INLINED {
    unrolled<4>([&](auto i) PANELS_INLINED { vst1q_s32(sums + row * kColumns + 4 * i, sum[row][i]); });
  });
}

}  // namespace

void depthwise_words_neon(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums) {
  int row = 0;
  for (; row + 3 <= rows; row += 3) depthwise_rows<3>(pixels + row, rows, taps, offset, weights, sums + row * kColumns);
  for (; row < rows; ++row) depthwise_rows<1>(pixels + row, rows, taps, offset, weights, sums + row * kColumns);
}

const Functions& functions_neon() {
  static constexpr Functions kFunctions = {
      {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>},
      depthwise_words_neon,
      nullptr,
      apply_epilogue_neon,
      add_bias_neon,
      widen_neon,
      false};
  return kFunctions;
}

}  // namespace tpuconvert::panels
#endif
