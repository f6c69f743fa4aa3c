// Instructions of an element-wise step after validation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "int8/epilogue/epilogue.h"
#include "int8/elementwise/element_kernels.h"
#include "int8/elementwise/elements.h"

namespace tpuconvert {

inline int bytes_of(ElementType type) { return type == ElementType::kU8 ? 1 : type == ElementType::k32 ? 4 : 2; }

enum class Kind {
  kLoad,
  kLinear,
  kLinearSum,
  kTable,
  kLanes,  // an operation of LaneCode
  kSlow,   // a rescale without a vector implementation
};

struct Instruction {
  Kind kind = Kind::kLanes;
  int code = 0;
  int a = -1, b = -1;
  std::int32_t low = 0, high = 0;
  bool is_per_channel = false, has_second = false, has_again = false, is_wide = false;
  std::vector<std::vector<std::int32_t>> parameters;  // scalars, or vectors with one element per channel
  std::vector<std::int32_t> table;
  std::unique_ptr<WideTable> wide_table;
  Epilogue epilogue;                // only for kSlow
};

// Throws std::invalid_argument for unknown codes, missing operands or results, and wrong numbers of parameters.
std::vector<Instruction> prepare_instructions(const ElementSpec& spec, std::int64_t channels);

}  // namespace tpuconvert
