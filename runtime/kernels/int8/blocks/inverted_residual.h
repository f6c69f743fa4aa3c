// Fused inverted residual: a 1x1 expansion, a depthwise convolution and a 1x1 projection, band by band of result rows.
//
// The expanded tensor and the result of the depthwise convolution exist only as bands, which stay in the second-level
// cache. A band keeps the expanded rows that the next one reads too, so that nothing is computed twice. The expansion is
// optional.
#pragma once

#include <memory>
#include <optional>

#include "core/isa.h"
#include "core/step.h"
#include "int8/conv/conv.h"

namespace tpuconvert {

// The output of a stage has the extents of the input of the next one. Only the strides of intermediate tensors are used,
// not their places.
struct InvertedResidualSpec {
  std::optional<ConvInt8Spec> expansion;
  ConvInt8Spec depthwise;
  ConvInt8Spec projection;  // may have a residual
};

// Checks the parameters and makes the step. Throws like make_conv_int8, and std::invalid_argument for stages that do not
// fit together.
std::shared_ptr<Step> make_inverted_residual(const InvertedResidualSpec& spec, Isa isa);

}  // namespace tpuconvert
