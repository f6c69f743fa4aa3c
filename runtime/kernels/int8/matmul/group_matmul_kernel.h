// Matmul of INT8 activations with group-quantized weights: arguments that the step passes to the kernels of an
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

// Registers of columns in a panel of packed weights.
constexpr int kInt8PanelVectors = 2;

// Rows that are quantized together.
constexpr std::int64_t kInt8RowBlock = 192;

// A block of quantized rows. Each row has a scale and sums per group of the depth.
struct Int8Rows {
  std::int8_t* values = nullptr;  // [row][depth], 0 after the last k
  float* scale = nullptr;         // [row][group]
  std::int32_t* start = nullptr;  // [row][group], first summand of the products of the group
  float* sum = nullptr;           // [row][group], sum of the quantized values
};

// Packed weights, by panels of `kInt8PanelVectors` registers of columns. Each panel contains, for 4 bits, a 32-bit word
// per 8 consecutive k and column: byte j is code k + j in the low-order bits and code k + 4 + j in the others. For 8
// bits, it contains a word of 4 codes per 4 consecutive k and column.
struct Int8GroupTask {
  std::int64_t columns = 1, depth = 1, groups = 1;
  std::int64_t padded = 8;  // depth, rounded up to a multiple of 8
  int bits = 4, group = 32;
  const std::uint8_t* codes = nullptr;  // [panel][word of k][column of the panel]
  const float* scale = nullptr;         // [panel][group][column of the panel], 0 after the last column
  const float* zero = nullptr;          // like `scale`, or null: 2^(bits - 1)
  const float* bias = nullptr;          // [column]

  // Bytes of the codes of one column.
  std::int64_t column_bytes() const { return padded * bits / 8; }
};

struct Int8GroupKernels {
  int lanes;  // columns in one register
  // Quantizes `count` rows of x.
  void (*quantize)(const Int8GroupTask& task, const float* x, std::int64_t count, const Int8Rows& rows);
  // Computes panels first <= panel < last for `count` quantized rows.
  void (*multiply)(const Int8GroupTask& task, std::int64_t first, std::int64_t last, const Int8Rows& rows,
                   std::int64_t count, float* y);
};

extern const Int8GroupKernels kInt8GroupScalar;
extern const Int8GroupKernels kInt8GroupAvx2;
extern const Int8GroupKernels kInt8GroupAvxVnni;
extern const Int8GroupKernels kInt8GroupAvx512Vnni;
extern const Int8GroupKernels kInt8GroupNeon;
extern const Int8GroupKernels kInt8GroupDotprod;
extern const Int8GroupKernels kInt8GroupI8mm;

}  // namespace tpuconvert
