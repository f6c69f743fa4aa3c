// Exact requantization with a single fused multiply-add on subnormal numbers.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

// A channel with the results floor(factor * sum + offset + 1/2), clamped to the limits.
struct OneFactorChannel {
  float factor = 0.0f;
  int offset = 0;
  std::int64_t largest = 0;  // largest magnitude of its sums
};

// Computes the parameters of TileEpilogue::kSubnormal for kLanes channels: writes `factor` and `second`, and adds to
// `bias`. Channels with factor 0 are unused. Only results within the limits are exact; others stay beyond the limits.
// Returns false and writes nothing if a channel has no solution.
bool make_subnormal(const OneFactorChannel* channels, int low, int high, LaneParameters* lanes);

// Disables flush-to-zero and denormals-are-zero during its lifetime.
class WithSubnormals {
 public:
  WithSubnormals() : before_(_mm_getcsr()) {
    if ((before_ & kFlushes) != 0) _mm_setcsr(before_ & ~kFlushes);
  }
  WithSubnormals(const WithSubnormals&) = delete;
  WithSubnormals& operator=(const WithSubnormals&) = delete;
  ~WithSubnormals() {
    if ((before_ & kFlushes) != 0) _mm_setcsr(before_);
  }

 private:
  static constexpr unsigned kFlushes = 0x8040;  // MXCSR bits: flush-to-zero, denormals-are-zero
  unsigned before_;
};

}  // namespace tpuconvert::avx512
