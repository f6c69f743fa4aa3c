// Matmul with group-quantized weights: arguments that the step passes to the kernels of an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "float32/matmul/matmul_kernel.h"

namespace tpuconvert {

// Registers of columns whose weights are interleaved. The last panel may have fewer.
constexpr int kGroupPanelVectors = 4;

// Packed weights, by panels of `kGroupPanelVectors` registers of columns. Each panel contains, for 4 bits, a 32-bit word
// per 8 consecutive k and column, with the first code in the low-order bits; for 8 bits, a byte per k and column.
struct GroupMatmulTask {
  MatmulTask matmul;  // rows, columns, depth, the strides of x and y, and the bias
  int bits = 4, group = 32;
  const std::uint8_t* codes = nullptr;  // [panel][word or byte of k][column of the panel]
  const float* scale = nullptr;         // [panel][group][column of the panel]
  const float* zero = nullptr;          // like `scale`, or null: 2^(bits - 1)
  std::int64_t groups = 1;

  // Bytes of the codes of one column.
  std::int64_t column_bytes() const { return bits == 4 ? (matmul.depth + 7) / 8 * 4 : matmul.depth; }
};

struct GroupMatmulKernels {
  int lanes;  // columns in one register
  // Computes panels first <= panel < last for all rows. Weights are dequantized once per block of a few rows.
  void (*decode)(const GroupMatmulTask& task, std::int64_t first, std::int64_t last, const float* x, float* y);
  // Dequantizes `count` registers of columns of a panel, beginning with register `start`, to `depth` rows whose distance is
  // `pitch` floats.
  void (*dequantize)(const GroupMatmulTask& task, std::int64_t panel, int start, int count, std::ptrdiff_t pitch, float* to);
};

extern const GroupMatmulKernels kGroupMatmulScalar;
extern const GroupMatmulKernels kGroupMatmulAvx2;
extern const GroupMatmulKernels kGroupMatmulAvx512;
extern const GroupMatmulKernels kGroupMatmulNeon;

}  // namespace tpuconvert
