// Conversions between binary16 and binary32 without hardware support, for operators that are not hot.
#pragma once

#include <cstdint>
#include <cstring>

namespace tpuconvert {

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  std::uint32_t fraction = half & 0x3ffu;
  std::uint32_t bits = sign;
  if (exponent == 31) {
    bits |= 0x7f800000u | fraction << 13;
  } else if (exponent != 0) {
    bits |= (exponent + 112) << 23 | fraction << 13;
  } else if (fraction != 0) {
    std::uint32_t scale = 113;  // a subnormal: shift its leading bit out
    for (; (fraction & 0x400u) == 0; fraction <<= 1) --scale;
    bits |= scale << 23 | (fraction & 0x3ffu) << 13;
  }
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Rounds to nearest, ties to even. A NaN keeps the high bits of its payload.
inline std::uint16_t float_to_half(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    const std::uint32_t payload = magnitude >> 13 & 0x3ffu;
    return static_cast<std::uint16_t>(sign | 0x7c00u | (payload != 0 ? payload : 1));
  }
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 rounds to infinity
  if (magnitude >= 0x38800000u) {
    const std::uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
  const std::uint32_t exponent = magnitude >> 23;
  if (exponent < 102) return static_cast<std::uint16_t>(sign);  // below 2^-25
  const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
  const std::uint32_t shift = 126 - exponent;  // 14..24
  const std::uint32_t kept = fraction >> shift, rest = fraction & ((1u << shift) - 1), half = 1u << (shift - 1);
  return static_cast<std::uint16_t>(sign | (kept + (rest > half || (rest == half && (kept & 1u)) ? 1 : 0)));
}

}  // namespace tpuconvert
