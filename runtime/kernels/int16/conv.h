// Convolution with 16-bit weights and an operand of 16 or 8 bits; a matmul is a convolution with one tap.
//
// It computes what the integer operators of a node with 16 bits compute (optimizer/quantize/lowering/lower_wide.py). Weights are
// given as signed bytes `high` and `low`, w = 256 * high + low.
//   16-bit operand: x = 256 * byte + rest with signed bytes (x above 32639 saturates)
//                   sum = x * high + byte * low + bias, which leaves out rest * low
//   8-bit operand:  sum = (x - zero) * w + bias
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/conv/conv.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

struct ConvInt16Spec {
  Place input;
  Place output;
  ConvGeometry geometry;
  bool is_wide = true;             // the operand has 16 bits
  WeightView high, low;            // only valid while the step is made; zero points are 0
  std::vector<std::int32_t> bias;  // one per output channel, or empty
  int input_zero = 0;              // stored zero point of an 8-bit operand
  EpilogueSpec epilogue;           // one rounding, half up
  std::optional<EpilogueSpec> second;  // the same for the 16-bit results of `epilogue`
};

// Checks the parameters and makes the step. Throws std::invalid_argument for parameters that it does not support, and
// std::overflow_error if an accumulator may overflow 32 bits.
std::shared_ptr<Step> make_conv_int16(const ConvInt16Spec& spec, Isa isa);

}  // namespace tpuconvert
