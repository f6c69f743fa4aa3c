// A chain or tree of element-wise operators, fused into one step: every element is loaded once and stored once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

enum class ElementType { kU8, kU16, kI16, k32 };

// An operand or the result. Strides are in bytes per axis of the step; 0 broadcasts.
struct ElementTensor {
  Place place;
  ElementType type = ElementType::kU8;
  std::vector<std::int64_t> strides;
};

// One instruction. `a` and `b` are indices of earlier instructions, whose results are its operands.
struct ElementInstruction {
  // The name of a LaneCode, or one of these, where x[k] is operand k of the step:
  //   load         x[a] + low
  //   linear       x[a] * parameter 0 + parameter 2, for bytes; parameter 1 is 0
  //   linear_sum   x[a] * parameter 0 + x[b] * parameter 1 + parameter 2, for bytes
  //   table        table[x[a]], for bytes
  //   rescale      requantization of the result of instruction `a` by `epilogue`; `a` has values in low..high
  std::string code;
  int a = -1, b = -1;
  std::int32_t low = 0, high = 0;
  std::vector<std::vector<std::int32_t>> parameters;  // scalars, or vectors with one element per channel
  std::vector<std::int32_t> table;                    // table and look_up: 256 entries; gather: one or more
  EpilogueSpec epilogue;                              // rescale: has 32-bit results
};

struct ElementSpec {
  std::vector<std::int64_t> shape;  // axes in memory order
  int channel_axis = -1;            // axis of per-channel parameters, or -1
  std::vector<ElementTensor> operands;
  std::vector<ElementInstruction> instructions;  // the result of the last one is stored
  ElementTensor result;
  std::int32_t low = 0, high = 0, bias = 0;  // 8- and 16-bit results: stored = min(max(value, low), high) + bias
  std::vector<std::uint8_t> table;           // 8-bit results: lookup table applied to stored bytes, or empty
};

// Throws std::invalid_argument for inconsistent or unsupported parameters.
std::shared_ptr<Step> make_elements(const ElementSpec& spec, Isa isa);

}  // namespace tpuconvert
