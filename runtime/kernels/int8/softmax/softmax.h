// Integer softmax along rows of stored bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

// softmax_int along contiguous rows. `zero` is a stored value.
struct SoftmaxIntSpec {
  Place source;
  Place target;
  std::int64_t rows = 1;
  int length = 1;
  std::vector<float> table;  // 256
  float scale = 1.0f;
  std::int32_t zero = 0;
};

std::shared_ptr<Step> make_softmax_int(const SoftmaxIntSpec& spec, Isa isa);

}  // namespace tpuconvert
