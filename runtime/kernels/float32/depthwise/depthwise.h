// Float32 depthwise convolution: arguments that steps pass to the kernels of an instruction set.
#pragma once

#include "float32/elementwise/chain.h"
#include "float32/images/window.h"

namespace tpuconvert {

struct DepthwiseTask : Window {
  int channels = 1;
  std::ptrdiff_t stride = 0;  // floats from the weights of one tap to the next: channels, rounded up to whole registers
  const float* weights = nullptr;  // [kernel_h][kernel_w][stride]
  const float* bias = nullptr;     // [stride]
  const float* zeros = nullptr;    // [stride], read instead of pixels in the padding
  Limits limits;
  const ChainOp* tail = nullptr;   // fused operators, used instead of residual add and clamp; operand 1 is the residual
  int tail_count = 0;
  ChainFunction run_tail = nullptr;
};

// Computes rows first <= row < last of the result, counted over all images. `residual` may be null; otherwise it has
// the strides of the result.
using DepthwiseFunction = void (*)(const DepthwiseTask& task, std::int64_t first, std::int64_t last, const float* input,
                                   const float* residual, float* output);

// The kernels of an instruction set.
struct DepthwiseKernels {
  int lanes;
  DepthwiseFunction run;
  DepthwiseFunction run_precise;  // accumulates in float64 and rounds once
};

extern const DepthwiseKernels kDepthwiseScalar;
extern const DepthwiseKernels kDepthwiseAvx2;
extern const DepthwiseKernels kDepthwiseAvx512;
extern const DepthwiseKernels kDepthwiseNeon;

}  // namespace tpuconvert
