// Mean, sum, maximum or minimum of one axis of stored bytes.
#pragma once

#include <cstdint>
#include <memory>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

enum class Reduction { kMean, kSum, kMaximum, kMinimum };

// Reduces contiguous bytes [outer, count, inner] to [outer, inner].
struct ReduceSpec {
  Place source;
  Place target;
  std::int64_t outer = 1, count = 1, inner = 1;
  Reduction reduction = Reduction::kMean;
  std::int32_t bias = 0;  // 0 or kStoredBias, included in every stored byte; results saturate
};

// Throws std::invalid_argument for invalid extents and for sums that may overflow 32 bits.
std::shared_ptr<Step> make_reduce(const ReduceSpec& spec, Isa isa);

}  // namespace tpuconvert
