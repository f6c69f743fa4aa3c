// Binary32 convolutions with one channel per group: what their steps hand to the kernels of an instruction set.
#pragma once

#include "float32/elementwise/chain.h"
#include "float32/images/window.h"

namespace tpuconvert {

struct DepthwiseTask : Window {
  int channels = 1;
  std::ptrdiff_t stride = 0;       // floats between the weights of one tap and the next: channels, rounded up to registers
  const float* weights = nullptr;  // [kernel_h][kernel_w][stride]
  const float* bias = nullptr;     // [stride]
  const float* zeros = nullptr;    // [stride], what padding reads
  Limits limits;
  const ChainOp* tail = nullptr;   // what follows, instead of an addition and limits; operand 1 is the residual
  int tail_count = 0;
  ChainFunction run_tail = nullptr;
};

// Rows of the result, counted over all images: first <= row < last. `residual` may be null; otherwise it has the strides
// of the result.
using DepthwiseFunction = void (*)(const DepthwiseTask& task, std::int64_t first, std::int64_t last, const float* input,
                                   const float* residual, float* output);

// The kernels of an instruction set.
struct DepthwiseKernels {
  int lanes;
  DepthwiseFunction run;
  DepthwiseFunction run_precise;  // sums in float64, rounded once
};

extern const DepthwiseKernels kDepthwiseScalar;
extern const DepthwiseKernels kDepthwiseAvx2;
extern const DepthwiseKernels kDepthwiseAvx512;

}  // namespace tpuconvert
