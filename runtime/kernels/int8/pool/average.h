// Conversion of sums of stored bytes to stored averages.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "int8/elementwise/element_kernels.h"
#include "int8/pool/pool.h"

namespace tpuconvert {

inline void check_average(const AverageSpec& spec) {
  if (spec.shift < 0 || spec.shift > 63) throw std::invalid_argument("average: the shift is outside of 0..63");
  if (spec.bias != 0 && spec.bias != kStoredBias) throw std::invalid_argument("average: there is no such bias");
}

// Stores `size` averages. Each of `sums` is the sum of `elements` stored bytes; `count` is the divisor if spec.divides.
inline void store_averages(const ElementKernels& kernels, const AverageSpec& spec, const std::int32_t* sums,
                            std::int32_t elements, std::int32_t count, std::uint8_t* to, std::int64_t size) {
  const std::int32_t subtracted = spec.bias * elements;
  if (spec.divides) return kernels.averages(sums, subtracted, count, spec.bias, to, size);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t product = std::int64_t{sums[i] - subtracted} * spec.scale;  // magnitude below 2^62
    const std::int64_t result = spec.shift == 0 ? product : ((product >> (spec.shift - 1)) + 1) >> 1;
    const std::int64_t near = result > 255 ? 255 : result < -255 ? -255 : result;
    to[i] = static_cast<std::uint8_t>(near + spec.bias < 0 ? 0 : near + spec.bias > 255 ? 255 : near + spec.bias);
  }
}

}  // namespace tpuconvert
