// Results of the general convolution: bias, rescaling in the calculation modes of the operator set, and saturation.
#pragma once

#include <cstdint>

namespace tpuconvert {

// Methods of schema/arithmetic/quantized_sums.py, and the exact 32-bit result.
enum class ConvMode {
  kExact,              // sum + bias
  kLowPrecision,       // calculation mode 0
  kSymmetric,          // mode 1
  kAsymmetric,         // mode 2
  kDepthwiseInFloat,   // depthwise convolutions of BM1684 in modes 1 and 2
  kFloat,              // binary64 sums, rounded once
};

struct ConvRescale {
  ConvMode mode = ConvMode::kExact;
  float scale = 1;
  int shift = 0;
  std::int64_t multiplier = 0;  // of mode 0; 0 for none
  std::int64_t output_zero = 0;
  std::int64_t low = 0, high = 0;  // range of the result's type
};

// Bias of one channel: an integer, or a float; `is_late` if it is added after the rescaling of mode 1.
struct ConvBias {
  std::int64_t integer = 0;
  float real = 0;
  bool is_float = false;
  bool is_late = false;
};

// Rescales `count` sums of one channel in place. `zero_sums` are those of mode 2: the sums of x times the zero point of
// the weights; null for zeros. The bias of mode 2 already contains the products of the zero point of x.
void rescale_sums(const ConvRescale& rescale, const ConvBias& bias, const std::int64_t* zero_sums, std::int64_t count,
                  std::int64_t* sums);

// Bias of mode 2: bias - zero_products, in binary32 for a float bias, otherwise saturated to 32 bits.
ConvBias offline_bias(const ConvBias& bias, std::int64_t zero_products);

// Rounds a binary64 number to odd in binary32, so that a second rounding to binary16 gives the nearest number.
float round_to_odd(double value);

}  // namespace tpuconvert
