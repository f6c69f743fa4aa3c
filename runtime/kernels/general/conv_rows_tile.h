// The inner loops for one instruction set: `Words` and `Doubles` are its vectors. Include after their definition.
#pragma once

#include <algorithm>
#include <cstdint>

#include "general/conv_rows.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kChannels = 4;  // channels and two vectors of positions stay in registers

template <typename Vector, typename Element, int kCount>
void add_products(const Element* taps, const Element* weights, std::int64_t pitch, std::int64_t depth, Element* sums) {
  for (std::int64_t start = 0; start < kPositions; start += 2 * Vector::kLanes) {
    Vector low[kCount], high[kCount];
    for (int c = 0; c < kCount; ++c) low[c] = high[c] = Vector::zero();
    for (std::int64_t k = 0; k < depth; ++k) {
      const Vector first = Vector::load(taps + k * kPositions + start);
      const Vector second = Vector::load(taps + k * kPositions + start + Vector::kLanes);
      for (int c = 0; c < kCount; ++c) {
        const Vector factor = Vector::broadcast(weights[c * pitch + k]);
        low[c] = Vector::multiply_add(first, factor, low[c]);
        high[c] = Vector::multiply_add(second, factor, high[c]);
      }
    }
    for (int c = 0; c < kCount; ++c) {
      low[c].store(sums + c * kPositions + start);
      high[c].store(sums + c * kPositions + start + Vector::kLanes);
    }
  }
}

template <typename Vector, typename Element>
void add_rows(const Element* taps, const Element* weights, std::int64_t pitch, std::int64_t depth, std::int64_t channels,
              Element* sums) {
  std::int64_t c = 0;
  for (; c + kChannels <= channels; c += kChannels)
    add_products<Vector, Element, kChannels>(taps, weights + c * pitch, pitch, depth, sums + c * kPositions);
  for (; c < channels; ++c) add_products<Vector, Element, 1>(taps, weights + c * pitch, pitch, depth, sums + c * kPositions);
}

}  // namespace

}  // namespace tpuconvert
