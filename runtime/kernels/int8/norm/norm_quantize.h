// Fused residual add, layer normalization and quantization.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/quantize/quantize_rows.h"

namespace tpuconvert {

// Rows are contiguous. bytes = quantize(normalize(x)), or quantize(normalize(x + residual)).
struct NormQuantizeSpec {
  Place x;
  std::optional<Place> residual;
  std::optional<Place> sum;     // where x + residual goes, if others read it
  std::optional<Place> reals;   // where the normalized numbers go, if others read them
  Place bytes;
  std::int64_t rows = 1, count = 1;
  double epsilon = 0;
  std::vector<float> factor, bias;  // one per element of a row, or empty
  ByteQuantization to;
};

// Throws std::invalid_argument for what does not fit together.
std::shared_ptr<Step> make_norm_quantize(const NormQuantizeSpec& spec, Isa isa);

}  // namespace tpuconvert
