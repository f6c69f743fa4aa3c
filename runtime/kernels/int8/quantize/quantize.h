// Steps on whole tensors: byte lookup tables, and quantization of float32 images.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// y = table[x] for `rows` rows of `length` bytes. Rows of x are `pitch` bytes apart, those of y are contiguous.
struct LookUpSpec {
  Place source;
  Place target;
  std::int64_t rows = 1, length = 0, pitch = 0;
  std::vector<std::uint8_t> table;
};

std::shared_ptr<Step> make_look_up(const LookUpSpec& spec, Isa isa);

// Quantizes float32 planes to channels-last bytes: y[n, p, c] = min(max(nearest(x[n, c, p] / divisor * scale[c]) +
// offset[c], low), high). Ties round away from zero, NaN is converted to 0.
struct QuantizeSpec {
  Place source;
  Place target;
  std::int64_t images = 1, channels = 1, pixels = 0;
  float divisor = 1.0f;
  std::vector<float> scale;          // one, or one per channel
  std::vector<std::int32_t> offset;  // one, or one per channel; refers to stored bytes, magnitude at most 2^24 - 256
  std::int32_t low = 0, high = 255;
};

// Throws std::invalid_argument for inconsistent parameters. The step reads nothing outside of the planes.
std::shared_ptr<Step> make_quantize(const QuantizeSpec& spec, Isa isa);

}  // namespace tpuconvert
