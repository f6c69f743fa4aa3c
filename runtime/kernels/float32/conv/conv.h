// Binary32 convolution with a fused epilogue; matmuls with constant weights are convolutions with one tap.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "float32/matmul/matmul_kernel.h"
#include "int8/conv/conv.h"

namespace tpuconvert {

// View of the weights in the file, with strides in elements.
struct FloatWeights {
  const float* data = nullptr;
  std::ptrdiff_t stride_out = 0, stride_in = 0, stride_y = 0, stride_x = 0;

  float at(int out, int in, int y, int x) const {
    return data[out * stride_out + in * stride_in + y * stride_y + x * stride_x];
  }
};

struct ConvFloatSpec {
  Place input;
  Place output;
  std::optional<Place> residual;  // added to the result; has the layout of the result
  ConvGeometry geometry;           // strides in bytes, multiples of four
  FloatWeights weights;           // only valid while the step is made
  std::vector<float> bias;        // one per output channel, or empty
  Limits limits;                  // applied after the residual add
  std::vector<ChainOp> tail;      // fused operators, used instead of residual add and clamp; operand 1 is the residual
  bool is_precise = false;        // accumulates in float64 and rounds once
  std::shared_ptr<const Step> like;  // step of another plan for the same weights, whose packed weights may be shared
};

// Throws std::invalid_argument for operations that lack an operand.
void check_tail(const ConvFloatSpec& spec);

// Makes a depthwise convolution: one channel per group. Called by make_conv_float.
std::shared_ptr<Step> make_depthwise_float(const ConvFloatSpec& spec, Isa isa);

// Checks the geometry and makes the step. Throws std::invalid_argument for extents or strides that do not fit together.
std::shared_ptr<Step> make_conv_float(const ConvFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
