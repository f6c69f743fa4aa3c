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
        // Of two zeros `larger` gives the second one: adding 0 makes it that of a limit 0, adding -0 changes nothing.
        zero(Float::broadcast(limits.low == 0 ? 0.0f : -0.0f)) {}

  FLOAT_INLINE Float operator()(Float x) const { return smaller(high, larger(low, x) + zero); }
};

// n lanes, 0 < n <= kLanes; all of them is the usual case.
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
