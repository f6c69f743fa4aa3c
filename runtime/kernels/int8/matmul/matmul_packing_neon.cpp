// Packing of the right operand of a matmul for the panels of AArch64.
#if defined(__aarch64__)
#include "int8/conv/panel_kernels_neon.h"
#include "int8/matmul/matmul_packing.h"

namespace tpuconvert {
namespace {

using panels::kColumns;

constexpr std::uint8_t kFlip = 0x80;

// May load up to 15 bytes after the last column. They belong to columns that are not stored.
uint8x16_t load_row(const PackingTask& task, std::int64_t k) {
  if (k >= task.depth) return vdupq_n_u8(0);
  return veorq_u8(vld1q_u8(task.right + k * task.row), vdupq_n_u8(kFlip));
}

void load_quad(const PackingTask& task, std::int64_t k, uint8x16_t (&quad)[4]) {
  panels::interleave4(load_row(task, k), load_row(task, k + 1), load_row(task, k + 2), load_row(task, k + 3), quad);
}

void pack_adjacent_columns(const PackingTask& task, int unit, int32x4_t (&sums)[4]) {
  std::uint8_t* to = task.weights;
  const auto add_up = [&](const uint8x16_t (&quad)[4]) {
    for (int i = 0; i < 4; ++i) sums[i] = vpadalq_s16(sums[i], vpaddlq_s8(vreinterpretq_s8_u8(quad[i])));
  };
  for (std::int64_t k = 0; k < task.depth; k += unit) {
    uint8x16_t first[4], second[4];
    load_quad(task, k, first);
    add_up(first);
    if (unit == 4) {
      for (int i = 0; i < 4; ++i, to += 16) vst1q_u8(to, first[i]);
      continue;
    }
    load_quad(task, k + 4, second);
    add_up(second);
    for (int i = 0; i < 4; ++i, to += 32)
      vst2q_u32(reinterpret_cast<std::uint32_t*>(to), {{vreinterpretq_u32_u8(first[i]), vreinterpretq_u32_u8(second[i])}});
  }
}

void clear(const PackingTask& task, std::int64_t bytes) {
  __builtin_memset(task.weights, 0, static_cast<std::size_t>(bytes));
}

// constant - left_zero * sum
void write_biases(const PackingTask& task, const std::int32_t* sums, std::int32_t* biases) {
  const int32x4_t zero = vdupq_n_s32(task.left_zero);
  for (int i = 0; i < kColumns; i += 4)
    vst1q_s32(biases + i, vmlsq_s32(vld1q_s32(task.constants + i), vld1q_s32(sums + i), zero));
}

}  // namespace

void pack_matmul_bytes_neon(const PackingTask& task, int unit, std::int32_t* biases) {
  std::int32_t sums[kColumns] = {};
  if (task.column == 1) {
    int32x4_t lanes[4] = {vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0), vdupq_n_s32(0)};
    pack_adjacent_columns(task, unit, lanes);
    for (int i = 0; i < 4; ++i) vst1q_s32(sums + 4 * i, lanes[i]);
  } else {
    clear(task, (task.depth + unit - 1) / unit * unit * kColumns);
    for (int column = 0; column < task.columns; ++column) {
      const std::uint8_t* from = task.right + column * task.column;
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < task.depth; ++k) sum += from[k];
      sums[column] = sum - static_cast<std::int32_t>(task.depth) * kFlip;
      std::uint8_t* to = task.weights + column * unit;
      for (std::int64_t k = 0; k < task.depth; k += unit, to += unit * kColumns)
        for (int i = 0; i < unit && k + i < task.depth; ++i) to[i] = from[k + i] ^ kFlip;
    }
  }
  write_biases(task, sums, biases);
}

void pack_matmul_words_neon(const PackingTask& task, int right_zero, std::int32_t* biases) {
  std::int32_t sums[kColumns] = {};
  const std::int64_t padded = (task.depth + 1) / 2 * 2;
  if (task.column == 1) {
    const int16x8_t zero = vdupq_n_s16(static_cast<std::int16_t>(right_zero));
    auto* to = reinterpret_cast<std::int16_t*>(task.weights);
    for (std::int64_t k = 0; k < padded; ++k, to += kColumns) {
      // The same columns as in load_row.
      const uint8x16_t row = k < task.depth ? vld1q_u8(task.right + k * task.row) : vdupq_n_u8(static_cast<std::uint8_t>(right_zero));
      vst1q_s16(to, vsubq_s16(vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(row))), zero));
      vst1q_s16(to + 8, vsubq_s16(vreinterpretq_s16_u16(vmovl_high_u8(row)), zero));
      for (int column = 0; column < kColumns; ++column) sums[column] += to[column];
    }
  } else {
    clear(task, padded * 2 * kColumns);
    for (int column = 0; column < task.columns; ++column) {
      const std::uint8_t* from = task.right + column * task.column;
      auto* to = reinterpret_cast<std::int16_t*>(task.weights) + column;
      for (std::int64_t k = 0; k < task.depth; ++k) {
        to[k * kColumns] = static_cast<std::int16_t>(from[k] - right_zero);
        sums[column] += from[k] - right_zero;
      }
    }
  }
  write_biases(task, sums, biases);
}

}  // namespace tpuconvert
#endif
