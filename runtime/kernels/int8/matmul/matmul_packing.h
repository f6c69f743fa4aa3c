// The right operand of a product of two operands in the order in which the register tiles read it.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

// Adjacent columns of the right operand. Bytes from element to element: `row` along the depth, `column` along the
// columns; one of them is 1.
struct PackingTask {
  const std::uint8_t* right;
  std::ptrdiff_t row, column;
  std::int64_t depth;
  int columns;
  int left_zero;
  const std::int32_t* constants;  // what is added to the sums; as many as the panel has lanes, in their order
  std::uint8_t* weights;
};

// Panels of tile.h: the signed bytes are the stored ones minus 128. bias = constant - left_zero * sum of the column,
// for lane l at biases[l / 16 * bias_stride + l % 16]. `full` registers of 16 columns, then a half one.
void pack_matmul_avx512vnni(const PackingTask& task, int full, bool half, std::int32_t* biases,
                             std::ptrdiff_t bias_stride);

// Panels of panel_kernels.h, 16 columns: signed bytes as above, or 16-bit words minus `right_zero`. Biases in panel order.
void pack_matmul_bytes_avx2(const PackingTask& task, std::int32_t* biases);
void pack_matmul_words_avx2(const PackingTask& task, int right_zero, std::int32_t* biases);

}  // namespace tpuconvert
