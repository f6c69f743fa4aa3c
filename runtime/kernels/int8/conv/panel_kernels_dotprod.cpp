// Panel kernels with dot products of four signed bytes. Stored inputs are unsigned; the kernels subtract 128 from them
// (byte_offset), which the bias compensates.
#if defined(__aarch64__)
#include "int8/conv/panel_kernels_neon.h"

namespace tpuconvert::panels {
namespace {

constexpr std::uint8_t kOffset = 128;

// Volatile, because the compiler would otherwise keep it in a register, which the accumulators need.
PANELS_INLINED inline uint8x16_t sign_bits() {
  uint8x16_t bits;
  asm volatile("movi %0.16b, #128" : "=w"(bits));
  return bits;
}

// Adds the dot products of `Lanes` groups of four bytes of depth to the sums of four vectors of columns each.
template <int Rows, int Lanes>
PANELS_INLINED inline void accumulate(int32x4_t (&sum)[Rows][4], const int8x16_t (&x)[Rows], const std::uint8_t* weights) {
  for_weights<4 * Lanes>(weights, [&](auto i, uint8x16_t w) PANELS_INLINED {
    unrolled<Rows>([&](auto row) PANELS_INLINED {
      sum[row][i % 4] = vdotq_laneq_s32(sum[row][i % 4], vreinterpretq_s8_u8(w), x[row], i / 4);
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
    for (; at + 16 <= tap_bytes; at += 16, weights += 4 * kStepBytes) {
      int8x16_t x[Rows];
      const uint8x16_t sign = sign_bits();
      unrolled<Rows>([&](auto row) PANELS_INLINED {
        x[row] = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(from[row] + at), sign));
      });
      accumulate<Rows, 4>(sum, x, weights);
    }
    for (; at < tap_bytes; at += 4, weights += kStepBytes) {
      int8x16_t x[Rows];
      const uint8x16_t sign = sign_bits();
      unrolled<Rows>([&](auto row) PANELS_INLINED {
        const auto* word = reinterpret_cast<const std::uint32_t*>(from[row] + at);
        x[row] = vreinterpretq_s8_u8(veorq_u8(vreinterpretq_u8_u32(vld1q_dup_u32(word)), sign));
      });
      accumulate<Rows, 1>(sum, x, weights);
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
  for (std::ptrdiff_t tap = 0; tap < taps; tap += 4, weights += kStepBytes, pixels += 4 * rows) {
    const auto load = [&](std::ptrdiff_t at) PANELS_INLINED {
      return veorq_u8(vld1q_u8(pixels[at] + offset), vdupq_n_u8(kOffset));
    };
    unrolled<Count>([&](auto row) PANELS_INLINED {
      uint8x16_t x[4];
      interleave4(load(row), load(row + rows), load(row + 2 * rows), load(row + 3 * rows), x);
      unrolled<4>([&](auto i) PANELS_INLINED {
        sum[row][i] = vdotq_s32(sum[row][i], vreinterpretq_s8_u8(x[i]), vreinterpretq_s8_u8(vld1q_u8(weights + 16 * i)));
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

const Functions& functions_dotprod() {
  static constexpr Functions kFunctions = {
      {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>},
      depthwise_words_neon,
      depthwise_bytes,
      apply_epilogue_neon,
      add_bias_neon,
      widen_neon,
      true,
      4,
      kOffset};
  return kFunctions;
}

}  // namespace tpuconvert::panels
#endif
