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

// bytes = quantize(normalize(x)) or quantize(normalize(x + residual)), along contiguous rows.
struct NormQuantizeSpec {
  Place x;
  std::optional<Place> residual;
  std::optional<Place> sum;     // x + residual, stored if it has other users
  std::optional<Place> reals;   // normalized values, stored if they have other users
  Place bytes;
  std::int64_t rows = 1, count = 1;
  double epsilon = 0;
  std::vector<float> factor, bias;  // one per element of a row, or empty
  ByteQuantization to;
};

// Throws std::invalid_argument for inconsistent parameters.
std::shared_ptr<Step> make_norm_quantize(const NormQuantizeSpec& spec, Isa isa);

}  // namespace tpuconvert
