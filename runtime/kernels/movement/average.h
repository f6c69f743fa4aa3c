// From the sum of stored bytes to a stored average.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <stdexcept>

#include "movement/pool.h"

namespace tpuconvert {

inline void check_average(const AverageSpec& spec) {
  if (spec.shift < 0 || spec.shift > 63) throw std::invalid_argument("average: shifts lie in 0..63");
  if (spec.bias != 0 && spec.bias != kStoredBias) throw std::invalid_argument("average: there is no such bias");
}

// Nearest integer of total / count, halves away from zero; 0 for no count.
inline std::int64_t quotient_half_away(std::int32_t total, std::int32_t count) {
  if (count < 1) count = 1;
  const std::uint32_t magnitude = total < 0 ? 0u - static_cast<std::uint32_t>(total) : static_cast<std::uint32_t>(total);
  const std::uint32_t whole = magnitude / static_cast<std::uint32_t>(count);
  const std::uint32_t rest = magnitude % static_cast<std::uint32_t>(count);
  const std::int64_t rounded = std::int64_t{whole} + (std::int64_t{2} * rest >= count);
  return total < 0 ? -rounded : rounded;
}

// `sum` of stored bytes, `elements` of them; |sum * scale| < 2^63 since sums have 31 bits.
inline std::uint8_t average_of(const AverageSpec& spec, std::int32_t sum, std::int32_t elements, std::int32_t count) {
  const std::int32_t total = sum - spec.bias * elements;
  std::int64_t result = 0;
  if (spec.divides) {
    result = quotient_half_away(total, count);
  } else {
    const std::int64_t product = std::int64_t{total} * spec.scale;
    result = spec.shift == 0 ? product : ((product >> (spec.shift - 1)) + 1) >> 1;
  }
  const std::int64_t stored = result > 255 ? 255 : result < -128 ? -128 : result;
  return static_cast<std::uint8_t>(stored + spec.bias < 0 ? 0 : stored + spec.bias > 255 ? 255 : stored + spec.bias);
}

}  // namespace tpuconvert
