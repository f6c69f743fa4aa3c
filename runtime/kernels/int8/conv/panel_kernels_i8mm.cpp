// Panel kernels with products of 2 x 8 unsigned bytes by 8 x 2 signed bytes, which add to a 2 x 2 tile of sums.
#if defined(__aarch64__)
#include "int8/conv/panel_kernels_neon.h"

namespace tpuconvert::panels {
namespace {

constexpr int kUnit = 8, kPairs = kColumns / 2;

template <int Rows>
void multiply(const std::uint8_t* const* pixels, std::ptrdiff_t taps, std::ptrdiff_t tap_bytes, std::ptrdiff_t offset,
              const std::uint8_t* weights, std::int32_t* sums) {
  constexpr int kRowPairs = (Rows + 1) / 2;
  int32x4_t sum[kRowPairs][kPairs];
  unrolled<kRowPairs>([&](auto row) PANELS_INLINED {
    unrolled<kPairs>([&](auto i) PANELS_INLINED { sum[row][i] = vdupq_n_s32(0); });
  });
  for (std::ptrdiff_t tap = 0; tap < taps; ++tap, pixels += Rows) {
    const std::uint8_t* from[2 * kRowPairs];  // an odd last row is multiplied twice
    unrolled<2 * kRowPairs>([&](auto row) PANELS_INLINED { from[row] = pixels[row < Rows ? row : Rows - 1] + offset; });
    for (std::ptrdiff_t at = 0; at < tap_bytes; at += kUnit, weights += kUnit * kColumns) {
      uint8x16_t x[kRowPairs];
      unrolled<kRowPairs>([&](auto row) PANELS_INLINED {
        x[row] = vcombine_u8(vld1_u8(from[2 * row] + at), vld1_u8(from[2 * row + 1] + at));
      });
      for_weights<kPairs>(weights, [&](auto i, uint8x16_t w) PANELS_INLINED {
        unrolled<kRowPairs>([&](auto row) PANELS_INLINED {
          sum[row][i] = vusmmlaq_s32(sum[row][i], x[row], vreinterpretq_s8_u8(w));
        });
      });
    }
  }
  unrolled<kRowPairs>([&](auto row) PANELS_INLINED {
    unrolled<kPairs / 2>([&](auto i) PANELS_INLINED {
      const int64x2_t a = vreinterpretq_s64_s32(sum[row][2 * i]), b = vreinterpretq_s64_s32(sum[row][2 * i + 1]);
      std::int32_t* to = sums + 2 * row * kColumns + 4 * i;
      vst1q_s32(to, vreinterpretq_s32_s64(vzip1q_s64(a, b)));
      if constexpr (2 * row + 1 < Rows) vst1q_s32(to + kColumns, vreinterpretq_s32_s64(vzip2q_s64(a, b)));
    });
  });
}

// `Count` of the rows, which share the loads of the weights.
template <int Count>
void depthwise_rows(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                    const std::uint8_t* weights, std::int32_t* sums) {
  int32x4_t sum[Count][4];
  unrolled<Count>([&](auto row) PANELS_INLINED { sum[row][0] = sum[row][1] = sum[row][2] = sum[row][3] = vdupq_n_s32(0); });
  for (std::ptrdiff_t tap = 0; tap < taps; tap += 4, weights += kStepBytes, pixels += 4 * rows) {
    const auto load = [&](std::ptrdiff_t at) PANELS_INLINED { return vld1q_u8(pixels[at] + offset); };
    unrolled<Count>([&](auto row) PANELS_INLINED {
      uint8x16_t x[4];
      interleave4(load(row), load(row + rows), load(row + 2 * rows), load(row + 3 * rows), x);
      unrolled<4>([&](auto i) PANELS_INLINED {
        sum[row][i] = vusdotq_s32(sum[row][i], x[i], vreinterpretq_s8_u8(vld1q_u8(weights + 16 * i)));
      });
    });
  }
  unrolled<Count>([&](auto row) PANELS_INLINED {
    unrolled<4>([&](auto i) PANELS_INLINED { vst1q_s32(sums + row * kColumns + 4 * i, sum[row][i]); });
  });
}

void depthwise_bytes(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                     const std::uint8_t* weights, std::int32_t* sums) {
  int row = 0;
  for (; row + 3 <= rows; row += 3) depthwise_rows<3>(pixels + row, rows, taps, offset, weights, sums + row * kColumns);
  for (; row < rows; ++row) depthwise_rows<1>(pixels + row, rows, taps, offset, weights, sums + row * kColumns);
}

}  // namespace

const Functions& functions_i8mm() {
  static constexpr Functions kFunctions = {
      {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>},
      depthwise_words_neon,
      depthwise_bytes,
      apply_epilogue_neon,
      add_bias_neon,
      widen_neon,
      true,
      kUnit,
      0};
  return kFunctions;
}

}  // namespace tpuconvert::panels
#endif
