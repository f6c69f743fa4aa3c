// Rounding of weights whose errors compensate each other; see optimizer/quantize/weights/weight_rounding.py.
//
// Every element is one chain of fused multiply-adds in a fixed order, so that results are equal on every instruction set
// and for any number of threads.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "core/thread_pool.h"

namespace tpuconvert {

struct RoundingKernels {
  int rows, columns;  // of a tile; `columns` is a multiple of `rows`
  // to[row, column] -= sum over k of left[k, row] * right[k, column]. `stride` is that of the rows of `to`.
  void (*subtract)(const float* left, const float* right, std::int64_t depth, float* to, std::int64_t stride);
  // y[i] -= factor * x[i].
  void (*subtract_row)(float factor, const float* x, std::int64_t count, float* y);
};

extern const RoundingKernels kRoundingScalar;
extern const RoundingKernels kRoundingAvx2;
extern const RoundingKernels kRoundingAvx512;
extern const RoundingKernels kRoundingNeon;

// Rounds weights to integers within -limit..limit, the last input first.
//
// `covariance` [groups, inputs, inputs] is replaced: its lower triangle by the factor. `wanted` [groups, inputs, outputs]
// is replaced by the errors. `result` has the same extents. Returns false if a matrix is not positive definite in
// float32; the results are then incomplete.
bool round_weights(float* covariance, float* wanted, float* result, std::int64_t groups, std::int64_t inputs,
                   std::int64_t outputs, float limit, Isa isa, ThreadPool& pool);

}  // namespace tpuconvert
