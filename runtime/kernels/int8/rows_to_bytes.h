// Rows of real numbers that become bytes at once: softmax or normalization and the quantization of the result, without a
// tensor of binary32 in between.
//
// The definitions compute in binary64, round to binary32, multiply and round to integers. Binary32 arithmetic gives the
// same integer wherever its error cannot reach the middle of two integers; that is checked for every element.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline.
#pragma once

#include <cstdint>

namespace tpuconvert {

enum class Isa;

// stored = nearest(x * scale) + offset, limited to low..high; the product is rounded to binary32, halves are rounded away
// from zero, NaN counts as 0. Stored values: an INT8 result has 128 added already.
struct ToBytes {
  float scale = 1.0f;
  std::int32_t offset = 0;        // |offset| <= 2^16
  std::int32_t low = 0, high = 255;
};

struct SoftmaxBytesTask {
  std::int64_t count = 1;  // elements of a row
  ToBytes to;
  float doubt = 0;         // bound of the relative error of probability * scale in binary32 arithmetic
  bool is_often_doubtful = false;  // many rows would have to be computed again
};

// One row, in binary32 or, where that leaves a doubt, in binary64. False where an element still lies so near to the middle
// of two integers that the error could decide; the row is undefined then. `powers` has room for `count` numbers, rounded
// up to 16.
using SoftmaxBytesFunction = bool (*)(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, double* powers);

bool softmax_bytes_avx2(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, double* powers);
bool softmax_bytes_avx512(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, double* powers);

// The definition of the softmax: exponentials and their sum in binary64, the quotient rounded to binary32. `powers` as above.
void softmax_bytes_precise(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, double* powers);

// Checks the parameters and sets `doubt`. Throws std::invalid_argument for what the vector forms do not cover.
SoftmaxBytesTask softmax_bytes_task(std::int64_t count, const ToBytes& to);

// Null where there is none for the instruction set.
SoftmaxBytesFunction softmax_bytes_function(Isa isa);

struct NormBytesTask {
  std::int64_t count = 1;         // elements of a row
  double epsilon = 0;
  const float* factor = nullptr;  // one per element, times the scale of the bytes; readable up to a multiple of 16
  const float* bias = nullptr;    // the same
  ToBytes to;
  // The error is at most relative_doubt * |result| + doubt + mean_doubt * (1 + |mean| / deviation).
  float relative_doubt = 0, doubt = 0, mean_doubt = 0;
};

// Normalizes one row, subtracting its mean. False where the error could decide; the row is undefined then.
using NormBytesFunction = bool (*)(const NormBytesTask& task, const float* x, std::uint8_t* y);
// sum = a + b, where `sum` may be either.
using AddRowFunction = void (*)(const float* a, const float* b, std::int64_t count, float* sum);

bool norm_bytes_avx2(const NormBytesTask& task, const float* x, std::uint8_t* y);
bool norm_bytes_avx512(const NormBytesTask& task, const float* x, std::uint8_t* y);
// Numbers as the definition makes them bytes.
using ToBytesFunction = void (*)(const ToBytes& to, const float* x, std::int64_t count, std::uint8_t* y);
void to_bytes_avx2(const ToBytes& to, const float* x, std::int64_t count, std::uint8_t* y);
void to_bytes_avx512(const ToBytes& to, const float* x, std::int64_t count, std::uint8_t* y);

void add_row_avx2(const float* a, const float* b, std::int64_t count, float* sum);
void add_row_avx512(const float* a, const float* b, std::int64_t count, float* sum);

NormBytesFunction norm_bytes_function(Isa isa);

// The byte of one number.
std::uint8_t byte_of(float real, const ToBytes& to);

// Throws std::invalid_argument for offsets and limits outside of what vectors cover.
void check_to_bytes(const ToBytes& to);

}  // namespace tpuconvert
