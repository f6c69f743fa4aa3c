// Kernels of panel_kernels.h for AArch64 that the variants of an instruction set share, and helpers for their loops.
#pragma once

#include <arm_neon.h>

#include "int8/conv/panel_kernels.h"

#define PANELS_INLINED __attribute__((always_inline))

namespace tpuconvert::panels {

void apply_epilogue_neon(PanelEpilogue kind, const std::int32_t* sums, int rows, const ColumnParameters& parameters,
                         const CommonParameters& common, std::uint8_t* const* outs, std::ptrdiff_t offset, int columns);
void add_bias_neon(std::int32_t* sums, int rows, const ColumnParameters& parameters);
void widen_neon(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to);
void depthwise_words_neon(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                          const std::uint8_t* weights, std::int32_t* sums);

namespace {

// Loops with a compile-time index, so that arrays of vectors stay in registers.
template <int Value>
struct Index {
  constexpr operator int() const { return Value; }
};

template <int Count, int From = 0, typename Body>
inline PANELS_INLINED void unrolled(Body&& body) {
  if constexpr (From < Count) {
    body(Index<From>{});
    unrolled<Count, From + 1>(body);
  }
}

// Calls body(Index<i>, vector i) for `Count` consecutive vectors of weights. Each vector is loaded before the one before it
// is used, which hides the latency of loads on processors that execute in order.
template <int Count, typename Body>
inline PANELS_INLINED void for_weights(const std::uint8_t* weights, Body&& body) {
  uint8x16_t next = vld1q_u8(weights);
  unrolled<Count>([&](auto i) PANELS_INLINED {
    const uint8x16_t w = next;
    if constexpr (i + 1 < Count) {
      next = vld1q_u8(weights + 16 * (i + 1));
      asm volatile("" : "+w"(next));  // the compiler would otherwise move the load to its use
    }
    body(i, w);
  });
}

// Transposes four vectors of bytes: vector i of the result has the bytes of columns 4 * i .. 4 * i + 3, four per column.
inline PANELS_INLINED void interleave4(uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d, uint8x16_t (&to)[4]) {
  const uint16x8_t low_ab = vreinterpretq_u16_u8(vzip1q_u8(a, b)), high_ab = vreinterpretq_u16_u8(vzip2q_u8(a, b));
  const uint16x8_t low_cd = vreinterpretq_u16_u8(vzip1q_u8(c, d)), high_cd = vreinterpretq_u16_u8(vzip2q_u8(c, d));
  to[0] = vreinterpretq_u8_u16(vzip1q_u16(low_ab, low_cd));
  to[1] = vreinterpretq_u8_u16(vzip2q_u16(low_ab, low_cd));
  to[2] = vreinterpretq_u8_u16(vzip1q_u16(high_ab, high_cd));
  to[3] = vreinterpretq_u8_u16(vzip2q_u16(high_ab, high_cd));
}

}  // namespace
}  // namespace tpuconvert::panels
