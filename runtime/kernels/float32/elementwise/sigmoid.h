// Sigmoid of float32 vectors without float64 arithmetic. Include after functions.h.
//
// Every operation is rounded identically on every instruction set, and so are the results. They are within 0.516 ULP of
// the exact value, which is tested for every float32 operand.
#pragma once

#include <cstdint>

#include "float32/elementwise/functions.h"

namespace tpuconvert {
namespace {

// 1 / (1 + exp(-x)) for |x| < 87, where neither the exponential nor the result is subnormal.
//
// exp(-x) = 2^(m/32) * exp(-r) for the nearest integer m, |r| < 0.0109. exp(-x) and 1 + exp(-x) are each represented by
// two floats, a value and its rounding error. The quotient is corrected by its exact remainder.
FLOAT_INLINE Float sigmoid_near(Float x) {
  // Bits of 2^(j/32) rounded to float32, minus j * 2^18, for j = m mod 32. Adding m << 18 restores j * 2^18 and adds
  // the integer part of m / 32 to the exponent.
  alignas(64) static constexpr std::uint32_t kPowers[32] = {
    0x3F800000, 0x3F7ECD87, 0x3F7DAAC3, 0x3F7C980F, 0x3F7B95C2, 0x3F7AA43A, 0x3F79C3D3, 0x3F78F4F0,
    0x3F7837F0, 0x3F778D3A, 0x3F76F532, 0x3F767043, 0x3F75FED7, 0x3F75A15B, 0x3F75583F, 0x3F7523F6,
    0x3F7504F3, 0x3F74FBAF, 0x3F7508A4, 0x3F752C4D, 0x3F75672A, 0x3F75B9BE, 0x3F76248C, 0x3F76A81E,
    0x3F7744FD, 0x3F77FBB8, 0x3F78CCDF, 0x3F79B907, 0x3F7AC0C7, 0x3F7BE4BA, 0x3F7D257D, 0x3F7E83B3,
  };
  // Rounding error of 2^(j/32), relative to r.
  alignas(64) static constexpr float kRests[32] = {
    0x0p+0f, 0x1.947416p-25f, -0x1.8d96d4p-25f, 0x1.dda2fep-25f,
    0x1.9c0c22p-27f, 0x1.a2fbb4p-25f, -0x1.964902p-25f, 0x1.2b0dbcp-25f,
    -0x1.125002p-25f, 0x1.cde8cep-26f, -0x1.370be4p-25f, -0x1.336de2p-30f,
    0x1.0a3552p-25f, 0x1.c541b6p-26f, 0x1.00d8acp-27f, 0x1.6cb284p-25f,
    -0x1.26055cp-26f, -0x1.8b2bb8p-26f, 0x1.05cb44p-25f, 0x1.1c2142p-26f,
    -0x1.67a1cap-28f, 0x1.348e56p-25f, -0x1.a3b5e4p-28f, 0x1.0b7ec8p-25f,
    0x1.f9c306p-27f, 0x1.e4c886p-26f, 0x1.6961b4p-28f, 0x1.b5151ep-28f,
    0x1.a5217cp-28f, 0x1.ab7132p-26f, -0x1.61428ep-28f, 0x1.2ad5f8p-27f,
  };
  const auto number = [](float value) __attribute__((always_inline)) { return Float::broadcast(value); };
  const Float one = number(1.0f);
  const Float shifter = number(0x1.8p+23f);  // adding it rounds to an integer m, stored in the low bits
  const Float shifted = fused(x, number(-0x1.715476p+5f), shifter);
  const Float m = shifted - shifter;
  // ln(2) / 32 as a sum of two floats. The first fused multiply-add is exact, because its result needs only 24 bits.
  const Float r = fused(m, number(0x1.62e43p-6f), x) + fused(m, number(-0x1.05c61p-34f), entry_of(kRests, shifted));
  // 1 - exp(-r) with an error below 2^-33: a fitted polynomial close to the Taylor series.
  const Float p = fused(r * r, fused(r, number(0x1.5555cep-3f), number(-0x1.000088p-1f)), r);
  const Float power = scaled_entry_of(kPowers, shifted);
  const Float e = less_product(power, p, power), e_rest = less_product(power, p, power - e);
  const Float sum = one + e, rest = smaller(one, e) - (sum - larger(one, e)) + e_rest;
  const Float y = one / sum;
  return fused(y, less_product(rest, y, less_product(sum, y, one)), y);
}

FLOAT_INLINE Float sigmoid(Float x) {
  const Float y = sigmoid_near(x);
  const FloatMask is_near = magnitude(x) < Float::broadcast(87.0f);
  if (all(is_near)) return y;
  Double halves[2];
  widen(x, halves);
  halves[0] = sigmoid(halves[0]);
  halves[1] = sigmoid(halves[1]);
  return select(is_near, y, narrow(halves));
}

}  // namespace
}  // namespace tpuconvert
