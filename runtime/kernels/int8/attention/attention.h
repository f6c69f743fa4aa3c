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
  MatmulInt8Spec scores;  // with float results; the output address is not used
  ByteQuantization probabilities;   // the softmax of a row of scores, as the left operand of `values`
  MatmulInt8Spec values;  // with the columns of the scores as depth; the left address is not used
};

// Throws as make_matmul_int8, and std::invalid_argument where the products do not fit together.
std::shared_ptr<Step> make_attention_int8(const AttentionInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
