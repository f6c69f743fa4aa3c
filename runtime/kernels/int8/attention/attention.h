// Attention in one step: a product, the softmax of its rows as bytes, and their product with another operand. The rows in
// between never leave the first cache.
#pragma once

#include <memory>

#include "core/isa.h"
#include "core/step.h"
#include "int8/matmul/matmul.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {

struct AttentionInt8Spec {
  MatmulInt8Spec scores;  // with real results; where they lie is not used
  ByteQuantization probabilities;   // the softmax of a row of scores, as the left operand of `values`
  MatmulInt8Spec values;  // as deep as the scores have columns; where its left operand lies is not used
};

// Throws as make_matmul_int8, and std::invalid_argument where the products do not fit together.
std::shared_ptr<Step> make_attention_int8(const AttentionInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
