// The Winograd convolution for AArch64. A register of columns is a pair of vectors of 4 integers; weights are in the
// order [channel][column], so that a lane of a transformed patch is multiplied by vectors of columns.
#if defined(__aarch64__)
#include <cstring>

#include "int8/conv/panel_kernels_neon.h"
#include "int8/winograd/winograd_kernels.h"

namespace tpuconvert::winograd {
namespace {

using panels::for_weights;
using panels::unrolled;

constexpr int kWords = 8, kLanes = 8, kVectors = 2;
constexpr int kRows = 6;  // 24 accumulators, six vectors of a patch and two of weights

struct Words {
  int16x8_t v;
};

inline Words load_bytes(const std::uint8_t* from, int count) {
  if (count == kWords) return {vreinterpretq_s16_u16(vmovl_u8(vld1_u8(from)))};
  std::uint8_t bytes[kWords] = {};
  for (int i = 0; i < count; ++i) bytes[i] = from[i];
  return {vreinterpretq_s16_u16(vmovl_u8(vld1_u8(bytes)))};
}
inline void store(std::int16_t* to, Words x) { vst1q_s16(to, x.v); }
inline Words add(Words a, Words b) { return {vaddq_s16(a.v, b.v)}; }
inline Words subtract(Words a, Words b) { return {vsubq_s16(a.v, b.v)}; }
template <int Bits>
inline Words shifted(Words x) {
  return {vshlq_n_s16(x.v, Bits)};
}

struct Integers {
  int32x4_t low, high;
};

inline Integers load(const std::int32_t* from) { return {vld1q_s32(from), vld1q_s32(from + 4)}; }
inline void store(std::int32_t* to, Integers x) {
  vst1q_s32(to, x.low);
  vst1q_s32(to + 4, x.high);
}
inline Integers add(Integers a, Integers b) { return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)}; }
inline Integers subtract(Integers a, Integers b) { return {vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)}; }
template <int Bits>
inline Integers shifted(Integers x) {
  return {vshlq_n_s32(x.low, Bits), vshlq_n_s32(x.high, Bits)};
}
inline Integers divided(Integers x) {
  return {vshrq_n_s32(vmulq_n_s32(x.low, kInverseOf9), 6), vshrq_n_s32(vmulq_n_s32(x.high, kInverseOf9), 6)};
}

#include "int8/winograd/winograd_transforms.inl"

// Adds the products of the first `Channels` words of v with the columns of as many channels.
template <int Rows, int Vectors, int Channels>
PANELS_INLINED inline void accumulate(int32x4_t (&sums)[Rows][2 * Vectors], const int16x8_t (&v)[Rows],
                                      const std::int16_t* u) {
  for_weights<Vectors * Channels>(reinterpret_cast<const std::uint8_t*>(u), [&](auto i, uint8x16_t bytes) PANELS_INLINED {
    const int16x8_t w = vreinterpretq_s16_u8(bytes);
    constexpr int kPart = i % Vectors * 2;
    unrolled<Rows>([&](auto row) PANELS_INLINED {
      sums[row][kPart] = vmlal_laneq_s16(sums[row][kPart], vget_low_s16(w), v[row], i / Vectors);
      sums[row][kPart + 1] = vmlal_high_laneq_s16(sums[row][kPart + 1], w, v[row], i / Vectors);
    });
  });
}

template <int Rows, int Vectors>
void multiply_tile(const ProductTask& task, int tile) {
  constexpr std::ptrdiff_t kColumns = Vectors * kLanes;
  int32x4_t sums[Rows][2 * Vectors];
  const std::int16_t* from[Rows];
  unrolled<Rows>([&](auto row) PANELS_INLINED {
    from[row] = task.v + (tile + row) * task.v_pitch;
    unrolled<2 * Vectors>([&](auto i) PANELS_INLINED { sums[row][i] = vdupq_n_s32(0); });
  });
  const std::int16_t* u = task.u;
  const std::ptrdiff_t channels = 2 * std::ptrdiff_t{task.pairs};
  std::ptrdiff_t channel = 0;
  for (; channel + 8 <= channels; channel += 8, u += 8 * kColumns) {
    int16x8_t v[Rows];
    unrolled<Rows>([&](auto row) PANELS_INLINED { v[row] = vld1q_s16(from[row] + channel); });
    accumulate<Rows, Vectors, 8>(sums, v, u);
  }
  for (; channel < channels; channel += 2, u += 2 * kColumns) {
    int16x8_t v[Rows];
    unrolled<Rows>([&](auto row) PANELS_INLINED {
      v[row] = vreinterpretq_s16_s32(vld1q_dup_s32(reinterpret_cast<const std::int32_t*>(from[row] + channel)));
    });
    accumulate<Rows, Vectors, 2>(sums, v, u);
  }
  unrolled<Rows>([&](auto row) PANELS_INLINED {
    std::int32_t* to = task.m + (tile + row) * task.m_pitch;
    unrolled<2 * Vectors>([&](auto i) PANELS_INLINED { vst1q_s32(to + 4 * i, sums[row][i]); });
  });
}

template <int Vectors, int Rows>
void multiply_rows(int rows, const ProductTask& task, int tile) {
  if constexpr (Rows > 1) {
    if (rows < Rows) return multiply_rows<Vectors, Rows - 1>(rows, task, tile);
  }
  multiply_tile<Rows, Vectors>(task, tile);
}

template <int Vectors>
void multiply_panel(const ProductTask& task) {
  // Heights differ by at most one, so that no group has few tiles.
  const int groups = (task.tiles + kRows - 1) / kRows;
  for (int group = 0; group < groups; ++group) {
    const int first = task.tiles * group / groups, last = task.tiles * (group + 1) / groups;
    multiply_rows<Vectors, kRows>(last - first, task, first);
  }
}

void multiply(const ProductTask& task) { task.vectors == 1 ? multiply_panel<1>(task) : multiply_panel<2>(task); }

}  // namespace

const Functions& functions_neon() {
  static constexpr Functions kFunctions{kLanes, kVectors, false, kRows, transform_input, multiply, transform_output};
  return kFunctions;
}

}  // namespace tpuconvert::winograd
#endif
