// Rounding right shifts of 64-bit integers, as in schema/arithmetic/fixed_point.py.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tpuconvert {

enum class Rounding { kHalfToEven, kHalfAway, kTowardsZero, kDown, kUp, kHalfUp, kHalfDown };

// x / 2^amount, rounded; amount is not negative and may exceed 63.
inline std::int64_t shift_right(std::int64_t x, std::int64_t amount, Rounding rounding) {
  if (amount <= 0) return x;
  const std::int64_t below = std::min<std::int64_t>(amount - 1, 63);
  const std::int64_t doubled = x >> below;
  const std::int64_t floor = doubled >> 1, half = doubled & 1;
  // The bits below the half bit; for amounts above 64 all bits are below it.
  const std::int64_t mask = amount - 1 > 63 ? -1 : static_cast<std::int64_t>((std::uint64_t{1} << below) - 1);
  const std::int64_t rest = (x & mask) != 0 ? 1 : 0;
  switch (rounding) {
    case Rounding::kHalfToEven: return floor + (half & (rest | (floor & 1)));
    case Rounding::kHalfAway: return floor + (half & (rest | (floor >= 0 ? 1 : 0)));
    case Rounding::kTowardsZero: return floor + ((half | rest) & (floor < 0 ? 1 : 0));
    case Rounding::kDown: return floor;
    case Rounding::kUp: return floor + (half | rest);
    case Rounding::kHalfUp: return floor + half;
    case Rounding::kHalfDown: return floor + (half & rest);
  }
  return floor;
}

// x * 2^amount for amount >= 0, clipped to magnitudes that saturate any 32-bit type as the exact product does.
inline std::int64_t shift_left(std::int64_t x, std::int64_t amount) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 32) - 1;
  for (const std::int64_t step : {std::clamp<std::int64_t>(amount, 0, 31), std::clamp<std::int64_t>(amount - 31, 0, 31)})
    if (step > 0) x = std::clamp(x, -kLimit, kLimit) * (std::int64_t{1} << step);
  return x;
}

// x * 2^amount without the bits above 64; for negative amounts floor(x / 2^-amount).
inline std::int64_t shift_modulo(std::int64_t x, std::int64_t amount) {
  if (amount < 0) return x >> std::min<std::int64_t>(-amount, 63);
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(x) << std::min<std::int64_t>(amount, 63));
}

}  // namespace tpuconvert
