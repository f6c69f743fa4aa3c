// Loops of the rounding. Include after the vector header of an instruction set.
#pragma once

#include <cstdint>

#include "float32/rounding/rounding.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

template <int kRows, int kVectors>
void run_subtract(const float* left, const float* right, std::int64_t depth, float* to, std::int64_t stride) {
  Float sum[kRows][kVectors];
  unroll<kRows>(UNROLLED(r) {
    unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value] = Float::load(to + r.value * stride + v.value * Float::kLanes); });
  });
  for (std::int64_t k = 0; k < depth; ++k, left += kRows, right += kVectors * Float::kLanes) {
    Float x[kVectors];
    unroll<kVectors>(UNROLLED(v) { x[v.value] = Float::load(right + v.value * Float::kLanes); });
    unroll<kRows>(UNROLLED(r) {
      const Float factor = Float::broadcast(-left[r.value]);
      unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value] = fused(factor, x[v.value], sum[r.value][v.value]); });
    });
  }
  unroll<kRows>(UNROLLED(r) {
    unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value].store(to + r.value * stride + v.value * Float::kLanes); });
  });
}

void run_subtract_row(float factor, const float* x, std::int64_t count, float* y) {
  const Float negative = Float::broadcast(-factor);
  std::int64_t i = 0;
  for (; i + Float::kLanes <= count; i += Float::kLanes)
    fused(negative, Float::load(x + i), Float::load(y + i)).store(y + i);
  if (i < count) {
    const int rest = static_cast<int>(count - i);
    fused(negative, Float::load_first(x + i, rest), Float::load_first(y + i, rest)).store_first(y + i, rest);
  }
}

}  // namespace
}  // namespace tpuconvert
