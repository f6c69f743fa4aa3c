// Fused quantization of rows: softmax or normalization with a quantized result, without an intermediate float32 tensor.
//
// The definitions compute in float64, round to float32, multiply and round to integers. Float32 arithmetic gives the
// same integer unless its error may cross a tie; this is checked for every element.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline.
#pragma once

#include <cstdint>

namespace tpuconvert {

enum class Isa;

// stored = min(max(nearest(x * scale) + offset, low), high). The product is rounded to float32, ties are rounded away
// from zero, and NaN is converted to 0. Stored values include 128 for an INT8 result.
struct ByteQuantization {
  float scale = 1.0f;
  std::int32_t offset = 0;        // |offset| <= 2^16
  std::int32_t low = 0, high = 255;
};

struct SoftmaxQuantizeTask {
  std::int64_t count = 1;  // elements of a row
  ByteQuantization to;
  float error_bound = 0;         // bound of the relative float32 error of probability * scale
  bool is_often_ambiguous = false;  // start with float64, because many rows would be ambiguous in float32
};

// Computes one row in float32 or, if an element is ambiguous, in float64. Returns false if an element is still so close
// to a tie that the error may decide; the row is then undefined. `powers` is scratch memory for `count` doubles,
// rounded up to 16.
using SoftmaxQuantizeFunction = bool (*)(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);

// Definition of the quantized softmax: exponentials and their sum in float64, the quotient rounded to float32. `powers`
// is scratch memory for `count` doubles.
void softmax_quantize_precise(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);

// Checks the parameters and sets `error_bound`. Throws std::invalid_argument for parameters that the vector kernels do
// not support.
SoftmaxQuantizeTask softmax_quantize_task(std::int64_t count, const ByteQuantization& to);

struct NormQuantizeTask {
  std::int64_t count = 1;         // elements of a row
  double epsilon = 0;
  // [element], normalization scale * quantization scale; readable up to a multiple of 16
  const float* factor = nullptr;
  const float* bias = nullptr;    // [element], bias * quantization scale; readable up to a multiple of 16
  ByteQuantization to;
  // The error of a result is at most relative_error * |result| + error_bound + mean_error * (1 + |mean| / deviation).
  float relative_error = 0, error_bound = 0, mean_error = 0;
};

// Normalizes one row, subtracting its mean. Returns false if an element is so close to a tie that the error may decide;
// the row is then undefined.
using NormQuantizeFunction = bool (*)(const NormQuantizeTask& task, const float* x, std::uint8_t* y);

struct QuantizeRowKernels {
  SoftmaxQuantizeFunction softmax;  // null if the instruction set has no implementation, like `norm`
  NormQuantizeFunction norm;
  // Quantizes a row, bit-exact with quantize_value.
  void (*quantize)(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y);
  // sum = a + b, where `sum` may equal a or b.
  void (*add)(const float* a, const float* b, std::int64_t count, float* sum);
};

extern const QuantizeRowKernels kQuantizeRowsScalar, kQuantizeRowsAvx2, kQuantizeRowsAvx512, kQuantizeRowsNeon;

// Returns the kernels for an instruction set.
const QuantizeRowKernels& quantize_row_kernels(Isa isa);

// Definition of the quantization of one value.
std::uint8_t quantize_value(float real, const ByteQuantization& to);

// Throws std::invalid_argument for scales, offsets and limits that the vector kernels do not support.
void check_quantization(const ByteQuantization& to);

}  // namespace tpuconvert
