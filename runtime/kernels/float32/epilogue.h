// Conv epilogue: residual add and clamp. Include after the vector header of the instruction set.
#pragma once

#include "float32/images/window.h"

namespace tpuconvert {
namespace {

struct LimitLanes {
  Float low, high, zero;

  FLOAT_INLINE explicit LimitLanes(const Limits& limits)
      : low(Float::broadcast(limits.low)),
        high(Float::broadcast(limits.high)),
        // If low is 0 and x is -0, `larger` returns -0, and adding +0 turns it into +0. Otherwise add -0, which is a
        // no-op.
        zero(Float::broadcast(limits.low == 0 ? 0.0f : -0.0f)) {}

  FLOAT_INLINE Float operator()(Float x) const { return smaller(high, larger(low, x) + zero); }
};

// Loads n lanes, 0 < n <= kLanes; the full vector is the common case.
FLOAT_INLINE Float load_lanes(const float* from, int n) {
  return n == Float::kLanes ? Float::load(from) : Float::load_first(from, n);
}

FLOAT_INLINE void store_lanes(Float x, float* to, int n) {
  if (n == Float::kLanes) {
    x.store(to);
  } else {
    x.store_first(to, n);
  }
}

// Number of lanes of a register that are columns of a panel of kVectors registers. The first one of several is full; of
// more than two, those after the last column have none.
template <int kVectors>
FLOAT_INLINE int stored_lanes(int columns, int vector) {
  if (kVectors > 1 && vector == 0) return Float::kLanes;
  const int left = columns - vector * Float::kLanes;
  return left >= Float::kLanes ? Float::kLanes : kVectors > 2 && left < 0 ? 0 : left;
}

}  // namespace
}  // namespace tpuconvert
