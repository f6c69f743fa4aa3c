#include "general/conv_epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "general/shifts.h"
#include "general/tensor.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kMost32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLeast32 = std::numeric_limits<std::int32_t>::min();

std::int64_t to_32(std::int64_t x) { return std::clamp(x, kLeast32, kMost32); }
std::int64_t to_16(std::int64_t x) { return std::clamp<std::int64_t>(x, -32768, 32767); }
std::int64_t half_up(std::int64_t x, int shift) { return shift_right(x, shift, Rounding::kHalfUp); }

float scaled_bias(const ConvBias& bias, float scale) {
  return (bias.is_float ? bias.real : static_cast<float>(bias.integer)) * scale;
}

// A multiplication by the scale, which rounds, and one by 2^shift.
float rescale_to_float(const ConvRescale& rescale, std::int64_t x) {
  return std::ldexp(static_cast<float>(x) * rescale.scale, rescale.shift);
}

std::int64_t low_precision(const ConvRescale& rescale, const ConvBias& bias, std::int64_t sum) {
  const std::int64_t total = to_32(sum + bias.integer);
  const std::int64_t result = std::clamp(half_up(total, rescale.shift), rescale.low, rescale.high);
  return rescale.multiplier == 0 ? result : half_up(result * rescale.multiplier, 7);
}

std::int64_t symmetric(const ConvRescale& rescale, const ConvBias& bias, std::int64_t sum) {
  const std::int64_t total = to_32(sum + (bias.is_late ? 0 : bias.integer));
  float result = rescale_to_float(rescale, to_16(half_up(total, rescale.shift)));
  if (bias.is_late) result = result + scaled_bias(bias, rescale.scale);
  return round_half_away(result);
}

std::int64_t asymmetric(const ConvRescale& rescale, const ConvBias& bias, std::int64_t sum, std::int64_t zero_sum) {
  const std::int64_t first = to_16(half_up(to_32(sum), rescale.shift));
  const std::int64_t second = to_16(half_up(to_32(zero_sum), rescale.shift));
  const float result = rescale_to_float(rescale, to_16(first - second)) + scaled_bias(bias, rescale.scale);
  return round_half_away(result) + rescale.output_zero;
}

std::int64_t depthwise_in_float(const ConvRescale& rescale, const ConvBias& bias, std::int64_t sum) {
  float result = static_cast<float>(sum + bias.integer);
  if (bias.is_float) result = result + bias.real;
  return round_half_away(result * rescale.scale) + rescale.output_zero;
}

}  // namespace

void rescale_sums(const ConvRescale& rescale, const ConvBias& bias, const std::int64_t* zero_sums, std::int64_t count,
                  std::int64_t* sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t result = sums[i] + bias.integer;
    if (rescale.mode == ConvMode::kLowPrecision) result = low_precision(rescale, bias, sums[i]);
    if (rescale.mode == ConvMode::kSymmetric) result = symmetric(rescale, bias, sums[i]);
    if (rescale.mode == ConvMode::kAsymmetric)
      result = asymmetric(rescale, bias, sums[i], zero_sums == nullptr ? 0 : zero_sums[i]);
    if (rescale.mode == ConvMode::kDepthwiseInFloat) result = depthwise_in_float(rescale, bias, sums[i]);
    sums[i] = std::clamp(result, rescale.low, rescale.high);
  }
}

ConvBias offline_bias(const ConvBias& bias, std::int64_t zero_products) {
  ConvBias found = bias;
  if (bias.is_float) found.real = bias.real - static_cast<float>(zero_products);
  else found.integer = to_32(bias.integer - zero_products);
  return found;
}

float round_to_odd(double value) {
  const float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(nearest) || std::isnan(value)) return nearest;
  std::uint32_t bits;
  std::memcpy(&bits, &nearest, sizeof(bits));
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;  // towards zero
  bits |= 1u;
  float odd;
  std::memcpy(&odd, &bits, sizeof(odd));
  return odd;
}

}  // namespace tpuconvert
