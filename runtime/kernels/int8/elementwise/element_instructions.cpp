#include "int8/elementwise/element_instructions.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "int8/elementwise/rescale_lanes.h"

namespace tpuconvert {

namespace {

constexpr const char* kNames[] = {
    "add", "subtract", "multiply", "add_limited", "subtract_limited", "multiply_limited", "maximum", "minimum", "shift",
    "absolute", "add_parameter", "add_limited_parameter", "multiply_parameter", "and_parameter", "rescale_lanes",
    "look_up", "gather", "to_float", "from_float", "float_add", "float_subtract", "float_multiply", "float_multiply_parameter",
    "float_add_parameter", "float_clamp", "choose_by_sign", "clamp"};
static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<std::size_t>(LaneCode::kCount), "one name per code");

int code_of(const std::string& name) {
  for (int code = 0; code < static_cast<int>(LaneCode::kCount); ++code)
    if (name == kNames[code]) return code;
  throw std::invalid_argument("elements: there is no instruction '" + name + "'");
}

int operands_of(int code) {
  switch (static_cast<LaneCode>(code)) {
    case LaneCode::kAdd:
    case LaneCode::kSubtract:
    case LaneCode::kMultiply:
    case LaneCode::kAddLimited:
    case LaneCode::kSubtractLimited:
    case LaneCode::kMultiplyLimited:
    case LaneCode::kMaximum:
    case LaneCode::kMinimum:
    case LaneCode::kFloatAdd:
    case LaneCode::kFloatSubtract:
    case LaneCode::kFloatMultiply:
    case LaneCode::kChooseBySign:
      return 2;
    default:
      return 1;
  }
}

int parameters_of(int code) {
  switch (static_cast<LaneCode>(code)) {
    case LaneCode::kAddParameter:
    case LaneCode::kAddLimitedParameter:
    case LaneCode::kMultiplyParameter:
    case LaneCode::kAndParameter:
    case LaneCode::kFloatMultiplyParameter:
    case LaneCode::kFloatAddParameter:
      return 1;
    case LaneCode::kFloatClamp:
      return 2;
    default:
      return 0;
  }
}

class Preparation {
 public:
  Preparation(const std::vector<ElementTensor>& operands, std::int64_t channels)
      : operands_(operands), channels_(channels) {}

  void add(const ElementInstruction& given) {
    Instruction made;
    made.a = given.a;
    made.b = given.b;
    made.low = given.low;
    made.high = given.high;
    made.parameters = given.parameters;
    made.table = given.table;
    const int position = static_cast<int>(instructions_.size());
    const auto check_operand = [&](int index, bool is_bytes) {
      if (index < 0 || index >= static_cast<int>(operands_.size()) ||
          (is_bytes && operands_[static_cast<std::size_t>(index)].type != ElementType::kU8))
        throw std::invalid_argument("elements: no such operand");
    };
    std::size_t needed = 0;
    if (given.code == "load") {
      made.kind = Kind::kLoad;
      check_operand(given.a, false);
    } else if (given.code == "linear" || given.code == "linear_sum") {
      made.kind = given.code == "linear" ? Kind::kLinear : Kind::kLinearSum;
      check_operand(given.a, true);
      if (made.kind == Kind::kLinearSum) check_operand(given.b, true);
      if (made.parameters.size() != 3) throw std::invalid_argument("elements: a linear function has three parameters");
      pair_factors(&made);
    } else if (given.code == "table") {
      made.kind = Kind::kTable;
      check_operand(given.a, true);
      make_wide_table(&made);
    } else {
      if (given.code == "rescale") {
        prepare(given, &made);
      } else {
        made.code = code_of(given.code);
        if (made.code == static_cast<int>(LaneCode::kRescale)) throw std::invalid_argument("elements: use 'rescale'");
        needed = static_cast<std::size_t>(parameters_of(made.code));
        if (operands_of(made.code) == 2 && (made.b < 0 || made.b >= position))
          throw std::invalid_argument("elements: no such result");
        if (made.code == static_cast<int>(LaneCode::kLookUp) && made.table.size() != 256)
          throw std::invalid_argument("elements: a table has 256 entries");
        if (made.code == static_cast<int>(LaneCode::kGather)) made.low = last_index(made.table);
        if (made.code == static_cast<int>(LaneCode::kShift) && (made.low < 1 || made.low > 31))
          throw std::invalid_argument("elements: a shift is 1..31");
      }
      if (made.a < 0 || made.a >= position) throw std::invalid_argument("elements: no such result");
    }
    if (needed != 0 && made.parameters.size() != needed)
      throw std::invalid_argument("elements: wrong number of parameters");
    instructions_.push_back(std::move(made));
  }

  std::vector<Instruction> take() { return std::move(instructions_); }

 private:
  // Replaces the two scales of `linear_sum` by one parameter with 16-bit pairs.
  static void pair_factors(Instruction* made) {
    const std::vector<std::int32_t> a = made->parameters[0], b = made->parameters[1];
    for (const auto* factors : {&a, &b})
      for (const std::int32_t factor : *factors)
        if (factor < -32768 || factor > 32767) throw std::invalid_argument("elements: factors have 16 bits");
    const std::size_t count = std::max(a.size(), b.size());
    if (a.empty() || b.empty() || (a.size() != 1 && a.size() != count) || (b.size() != 1 && b.size() != count))
      throw std::invalid_argument("elements: parameters are one number, or one per channel");
    std::vector<std::int32_t> pairs;
    for (std::size_t k = 0; k < count; ++k)
      pairs.push_back(factor_pair(a[a.size() == 1 ? 0 : k], made->kind == Kind::kLinear ? 0 : b[b.size() == 1 ? 0 : k]));
    made->parameters = {std::move(pairs), made->parameters[2]};
  }

  static std::int32_t last_index(const std::vector<std::int32_t>& table) {
    if (table.empty() || table.size() > (std::size_t{1} << 30)) throw std::invalid_argument("elements: no table");
    return static_cast<std::int32_t>(table.size()) - 1;
  }

  static void make_wide_table(Instruction* made) {
    if (made->table.size() != 256) throw std::invalid_argument("elements: a table has 256 entries");
    made->wide_table = std::make_unique<WideTable>();
    for (std::size_t entry = 0; entry < 256; ++entry) {
      made->wide_table->entries[entry] = made->table[entry];
      for (int plane = 0; plane < 4; ++plane)
        made->wide_table->planes[plane][entry] =
            static_cast<std::uint8_t>(static_cast<std::uint32_t>(made->table[entry]) >> (8 * plane));
    }
  }

  void prepare(const ElementInstruction& given, Instruction* made) const {
    // Rejects shifts and parameter lists that are invalid for the operator.
    Epilogue epilogue(given.epilogue, static_cast<int>(channels_));
    RescaleLanes lanes;
    if (prepare_rescale(given.epilogue, given.low, given.high, &lanes)) {
      made->code = static_cast<int>(LaneCode::kRescale);
      made->has_second = lanes.has_second;
      made->has_again = lanes.has_again;
      made->is_wide = lanes.is_wide;
      made->parameters.assign(lanes.parameters, lanes.parameters + kParameters);
    } else {
      made->kind = Kind::kSlow;
      made->epilogue = std::move(epilogue);
      const EpilogueSpec& spec = given.epilogue;
      made->is_per_channel = std::max({spec.multiplier.size(), spec.shift.size(), spec.offset.size()}) > 1;
      made->parameters.clear();
    }
  }

  const std::vector<ElementTensor>& operands_;
  std::int64_t channels_;
  std::vector<Instruction> instructions_;
};

}  // namespace

std::vector<Instruction> prepare_instructions(const ElementSpec& spec, std::int64_t channels) {
  Preparation preparation(spec.operands, channels);
  for (const ElementInstruction& given : spec.instructions) preparation.add(given);
  std::vector<Instruction> made = preparation.take();
  if (made.empty()) throw std::invalid_argument("elements: there are no instructions");
  for (Instruction& instruction : made)
    for (const auto& values : instruction.parameters) {
      if (values.size() != 1 && values.size() != static_cast<std::size_t>(channels))
        throw std::invalid_argument("elements: parameters are one number, or one per channel");
      instruction.is_per_channel = instruction.is_per_channel || values.size() > 1;
    }
  return made;
}

}  // namespace tpuconvert
