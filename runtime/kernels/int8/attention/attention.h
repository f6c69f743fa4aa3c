// Attention as one step: a matmul, the quantized softmax of its rows, and a second matmul. Intermediate rows stay in the
// first-level cache.
#pragma once

#include <memory>

#include "core/isa.h"
#include "core/step.h"
#include "int8/matmul/matmul.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {

struct AttentionInt8Spec {
  MatmulInt8Spec scores;  // float32 results; the output address is unused
  ByteQuantization probabilities;   // quantization of the softmax, the left operand of `values`
  MatmulInt8Spec values;  // depth = columns of `scores`; the left address is unused
};

// Throws like make_matmul_int8, and std::invalid_argument if the two matmuls have different shapes.
std::shared_ptr<Step> make_attention_int8(const AttentionInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
