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

}  // namespace
}  // namespace tpuconvert
