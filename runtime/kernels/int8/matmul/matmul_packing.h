// Packing of the right operand of a matmul of two activations for the register tiles.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

// Adjacent columns of the right operand. `row` and `column` are strides in bytes, along the depth and along the
// columns; one of them is 1.
struct PackingTask {
  const std::uint8_t* right;
  std::ptrdiff_t row, column;
  std::int64_t depth;
  int columns;
  int left_zero;
  const std::int32_t* constants;  // [lane], added to the sums
  std::uint8_t* weights;
};

// Packs panels of tile.h, with signed bytes that are the stored ones minus 128. A panel has `full` registers of 16
// columns and, if `half`, one of 8. Lane l has the bias biases[l / 16 * bias_stride + l % 16] = constant - left_zero *
// sum of the column.
void pack_matmul_avx512vnni(const PackingTask& task, int full, bool half, std::int32_t* biases,
                             std::ptrdiff_t bias_stride);

// Pack panels of panel_kernels.h with 16 columns: signed bytes as above, or 16-bit words minus `right_zero`. Biases are
// in panel order.
void pack_matmul_bytes_avx2(const PackingTask& task, std::int32_t* biases);
void pack_matmul_words_avx2(const PackingTask& task, int right_zero, std::int32_t* biases);

// The same for AArch64. `unit` is the depth of a dot product, 4 or 8.
void pack_matmul_bytes_neon(const PackingTask& task, int unit, std::int32_t* biases);
void pack_matmul_words_neon(const PackingTask& task, int right_zero, std::int32_t* biases);

}  // namespace tpuconvert
