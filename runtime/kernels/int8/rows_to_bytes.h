// Rows of real numbers that become bytes at once: softmax and quantization without a tensor of binary32 in between.
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
  float doubt = 0;         // bound of the relative error of probability * scale, see softmax_bytes_row
};

// One row in binary32. False where an element lies so near to the middle of two integers that the error could decide; the
// row is undefined then. `powers` holds `count` numbers, rounded up to 16.
using SoftmaxBytesFunction = bool (*)(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers);

bool softmax_bytes_avx2(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers);
bool softmax_bytes_avx512(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers);

// The definition: exponentials and their sum in binary64, the quotient rounded to binary32. `powers` as above.
void softmax_bytes_precise(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, double* powers);

// Checks the parameters and sets `doubt`. Throws std::invalid_argument for what the vector forms do not cover.
SoftmaxBytesTask softmax_bytes_task(std::int64_t count, const ToBytes& to);

// Null where there is none for the instruction set.
SoftmaxBytesFunction softmax_bytes_function(Isa isa);

}  // namespace tpuconvert
