// Element-wise operators on tensors of any type: comparisons, selections, arithmetic, bit logic and shifts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "general/tensor.h"

namespace tpuconvert {

// One operator on up to four broadcast operands. `domain` is the arithmetic:
// - "integer": exact in 64 bits, saturated to low..high, stored modulo the range of the result's type;
// - "small integer": the same in 32 bits, for operations and types that cannot overflow them;
// - "float": one binary32 operation, rounded to binary16 for a binary16 result. An integer result is rounded to the
//   nearest integer, ties away from zero, saturated to low..high.
// Shifts exist for integers only: `rounding` is the number of a rounding mode of the operator set.
struct AnyElementsSpec {
  std::string operation;
  std::string domain;
  std::vector<std::int64_t> shape;
  std::vector<AnyTensor> operands;
  AnyTensor result;
  std::int64_t low = 0, high = 0;
  int rounding = 0;
};

// Throws std::invalid_argument for an unknown operation, a wrong number of operands and invalid extents.
std::shared_ptr<Step> make_any_elements(const AnyElementsSpec& spec);

}  // namespace tpuconvert
