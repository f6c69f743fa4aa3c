// Exact requantization with a single fused multiply-add on subnormal numbers.
#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "int8/tile/tile.h"

namespace tpuconvert::avx512 {

// A channel whose results are floor(factor * sum + offset + 1/2), limited.
struct OneFactorChannel {
  float factor = 0.0f;
  int offset = 0;
  std::int64_t largest = 0;  // magnitude of its sums
};

// The kLanes channels of an accumulator as TileEpilogue::kSubnormal: writes `factor` and `second`, and adds to `bias`; those
// with the factor 0 are not there. Of results only those within the limits are certain; others stay beyond them. False,
// with nothing written, where it is not found for all of them.
bool make_subnormal(const OneFactorChannel* channels, int low, int high, LaneParameters* lanes);

// Enables subnormal numbers during its lifetime: the thread may have flush-to-zero enabled.
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
  static constexpr unsigned kFlushes = 0x8040;  // of results, of operands
  unsigned before_;
};

}  // namespace tpuconvert::avx512
