// ElementKernels::residual_float. Include after element_tile.h, with float32 operations in `Vector`.
#pragma once

#include <cstdint>

namespace tpuconvert {
namespace {

// All operations round towards minus infinity, which the proof also allows for the inner product.
void residual_float(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const FloatRescale& p,
                    std::uint8_t* to, int count) {
  const Vector::RoundingDown mode;
  const Factors f = Factors::of_all(sum);
  const auto high_part = Vector::broadcast_float(p.high_part), low_part = Vector::broadcast_float(p.low_part);
  const V addend = Vector::broadcast(factor_pair(p.addend, p.addend));
  const Bytes low = Vector::broadcast_byte(p.low), high = Vector::broadcast_byte(p.high);
  for_bytes(a, b, to, count, [&](Bytes x, Bytes y) ELEMENT_INLINED {
    Pairs pairs[Vector::kGroups];
    Vector::pair(x, y, pairs);
    V twice[Vector::kGroups][kVectors];
    for (int group = 0; group < Vector::kGroups; ++group) {
      sum_products<true>(pairs[group], f, twice[group]);
      for (V& value : twice[group]) value = Vector::floor_of_product(value, high_part, low_part);
    }
    return Vector::clamp_bytes(Vector::pack_halves(twice, addend), low, high);
  });
}

}  // namespace
}  // namespace tpuconvert
