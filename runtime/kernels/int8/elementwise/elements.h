// A chain or tree of element-wise operators as one step: every element is loaded once and stored once.
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

// An operand or the result: byte strides per axis of the step, 0 where it repeats.
struct ElementTensor {
  Place place;
  ElementType type = ElementType::kU8;
  std::vector<std::int64_t> strides;
};

// One instruction. Its result is known by its position in the list; `a` and `b` are earlier positions.
struct ElementInstruction {
  // A code of LaneCode by name, or
  //   load         elements of operand `a`, plus `low`
  //   linear       operand `a` (bytes) * parameter 0 + parameter 2; parameter 1 is 0
  //   linear_sum   operand `a` * parameter 0 + operand `b` * parameter 1 + parameter 2 (both bytes)
  //   table        table[operand `a`] (bytes)
  //   rescale      the rescale of `epilogue` of instruction `a`, with results in low..high
  std::string code;
  int a = -1, b = -1;
  std::int32_t low = 0, high = 0;
  std::vector<std::vector<std::int32_t>> parameters;  // one number, or one per channel
  std::vector<std::int32_t> table;                    // table and look_up: 256 entries
  EpilogueSpec epilogue;                              // rescale: a 32-bit result
};

struct ElementSpec {
  std::vector<std::int64_t> shape;  // in the order of memory
  int channel_axis = -1;            // along which parameters differ; -1 where none does
  std::vector<ElementTensor> operands;
  std::vector<ElementInstruction> instructions;  // the last one is stored
  ElementTensor result;
  std::int32_t low = 0, high = 0, bias = 0;  // the result is limited to low..high, then `bias` is added; not for 32 bits
  std::vector<std::uint8_t> table;           // for bytes: entry of the stored byte, or empty
};

// Throws std::invalid_argument for what does not fit together.
std::shared_ptr<Step> make_elements(const ElementSpec& spec, Isa isa);

}  // namespace tpuconvert
