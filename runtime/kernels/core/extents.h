// Overflow-safe arithmetic with extents read from a file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>

namespace tpuconvert {

// A bound above the size of any buffer. Sums and differences of a few values below it fit 64 bits.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;

// Product of extents and sizes. Throws std::invalid_argument if one of them is negative or if the product of the
// nonzero ones exceeds kMostBytes.
inline std::int64_t product_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool is_empty = false;
  for (const std::int64_t factor : factors) {
    if (factor < 0) throw std::invalid_argument("an extent is negative");
    if (factor == 0) is_empty = true;
    if (factor > 0 && (__builtin_mul_overflow(product, factor, &product) || product > kMostBytes))
      throw std::invalid_argument("extents are too large");
  }
  return is_empty ? 0 : product;
}

}  // namespace tpuconvert
