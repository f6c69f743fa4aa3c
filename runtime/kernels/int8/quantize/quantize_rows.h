// Fused quantization of rows: softmax or normalization with a quantized result, without an intermediate float32 tensor.
//
// The definitions compute in float64, round to float32, multiply and round to integers. Binary32 arithmetic gives the
// same integer wherever its error cannot reach the middle of two integers; that is checked for every element.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline.
#pragma once

#include <cstdint>

namespace tpuconvert {

enum class Isa;

// stored = nearest(x * scale) + offset, limited to low..high; the product is rounded to float32, halves are rounded away
// from zero, NaN counts as 0. Stored values: an INT8 result has 128 added already.
struct ByteQuantization {
  float scale = 1.0f;
  std::int32_t offset = 0;        // |offset| <= 2^16
  std::int32_t low = 0, high = 255;
};

struct SoftmaxQuantizeTask {
  std::int64_t count = 1;  // elements of a row
  ByteQuantization to;
  float error_bound = 0;         // bound of the relative error of probability * scale in float32 arithmetic
  bool is_often_ambiguous = false;  // many rows would have to be computed again
};

// One row, in float32 or, where that leaves a error_bound, in float64. False where an element still lies so near to the middle
// of two integers that the error could decide; the row is undefined then. `powers` has room for `count` numbers, rounded
// up to 16.
using SoftmaxQuantizeFunction = bool (*)(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);

bool softmax_quantize_avx2(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);
bool softmax_quantize_avx512(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);

// The definition of the softmax: exponentials and their sum in float64, the quotient rounded to float32. `powers` as above.
void softmax_quantize_precise(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers);

// Checks the parameters and sets `error_bound`. Throws std::invalid_argument for what the vector forms do not cover.
SoftmaxQuantizeTask softmax_quantize_task(std::int64_t count, const ByteQuantization& to);

// Null if the instruction set has none.
SoftmaxQuantizeFunction softmax_quantize_function(Isa isa);

struct NormQuantizeTask {
  std::int64_t count = 1;         // elements of a row
  double epsilon = 0;
  const float* factor = nullptr;  // one per element, times the scale of the bytes; readable up to a multiple of 16
  const float* bias = nullptr;    // the same
  ByteQuantization to;
  // The error is at most relative_error * |result| + error_bound + mean_error * (1 + |mean| / deviation).
  float relative_error = 0, error_bound = 0, mean_error = 0;
};

// Normalizes one row, subtracting its mean. False where the error could decide; the row is undefined then.
using NormQuantizeFunction = bool (*)(const NormQuantizeTask& task, const float* x, std::uint8_t* y);
// sum = a + b, where `sum` may be either.
using AddRowFunction = void (*)(const float* a, const float* b, std::int64_t count, float* sum);

bool norm_quantize_avx2(const NormQuantizeTask& task, const float* x, std::uint8_t* y);
bool norm_quantize_avx512(const NormQuantizeTask& task, const float* x, std::uint8_t* y);
// Numbers as the definition makes them bytes.
using QuantizeRowFunction = void (*)(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y);
void quantize_row_avx2(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y);
void quantize_row_avx512(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y);

void add_row_avx2(const float* a, const float* b, std::int64_t count, float* sum);
void add_row_avx512(const float* a, const float* b, std::int64_t count, float* sum);

NormQuantizeFunction norm_quantize_function(Isa isa);

// The byte of one number.
std::uint8_t quantize_value(float real, const ByteQuantization& to);

// Throws std::invalid_argument for offsets and limits outside of what vectors cover.
void check_quantization(const ByteQuantization& to);

}  // namespace tpuconvert
