// Chains of element-wise operators on float32 tensors, fused into one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

enum class ChainKind {
  // Binary operators: x is the result of the preceding operators, y is a tensor or the scalar `a`.
  kAdd, kSub, kReverseSub, kMul, kDiv, kReverseDiv,
  // NaN if an operand is NaN. For +0 and -0 the result is y, and in the reverse forms x.
  kMax, kMin, kReverseMax, kReverseMin,
  // 1 if the relation is true for x and y, otherwise 0.
  kGreater, kGreaterEqual, kLess, kLessEqual, kEqual, kNotEqual,
  // x > 0 ? y : b, and x > 0 ? b : y.
  kSelect, kReverseSelect,
  // Unary operators.
  kRelu, kLeakyRelu, kClamp, kAbs, kSquare, kSqrt, kReciprocalSqrt, kRound, kCeil, kFloor,
  kExp, kLog, kSin, kCos, kTanh, kSigmoid, kElu, kGelu, kGeluTanh, kSilu, kHardSigmoid, kHardSwish, kSoftplus, kMish,
};

// The kind with this name. Throws std::invalid_argument for an unknown name.
ChainKind chain_kind_named(const std::string& name);

// Storage type of the first operand. Integers are dequantized: (stored - zero) * scale in float32.
enum class ChainSource { kReal, kByte, kWord, kSignedWord };

struct ChainStart {
  ChainSource source = ChainSource::kReal;
  std::int32_t zero = 0;  // |stored - zero| < 2^24: exact in float32
  float scale = 1.0f;
};

// The storage type with this name: "u8", "u16" or "i16". Throws std::invalid_argument for an unknown name.
ChainSource chain_source_named(const std::string& name);

struct ChainOp {
  ChainKind kind = ChainKind::kAdd;
  int operand = -1;      // index of operand y; -1: y is the scalar `a`
  double a = 0, b = 0;   // slope, limits or scales, depending on `kind`
};

// A contiguous run of result elements, with the corresponding rows of the operands.
struct ChainRow {
  const ChainOp* ops = nullptr;
  int op_count = 0;
  const float* const* operands = nullptr;  // first element of each operand; operand 0 is the input of the chain
  const bool* are_single = nullptr;        // true for operands with one element for the whole row
  float* output = nullptr;
  std::int64_t count = 0;
};

// Maximum number of elements that go through the chain at a time.
constexpr int kChainBlock = 1024;

using ChainFunction = void (*)(const ChainRow& row);
// Dequantizes `count` stored integers.
using ChainReader = void (*)(const ChainStart& start, const std::uint8_t* from, float* to, std::int64_t count);

// `run_precise` evaluates functions by the C++ standard library in float64 and rounds once. It is used where the
// results are quantized afterwards.
struct ChainKernels {
  ChainFunction run;
  ChainFunction run_precise;
  ChainReader read;
};

extern const ChainKernels kChainScalar;
extern const ChainKernels kChainAvx2;
extern const ChainKernels kChainAvx512;
extern const ChainKernels kChainNeon;

const ChainKernels& chain_kernels(Isa isa);

// Applies a unary operator to `count` elements by the C++ standard library.
void apply_precise(const ChainOp& op, const float* from, float* to, std::int64_t count);

struct ChainOperand {
  Place place;
  std::vector<std::int64_t> strides;  // bytes per axis of the shape; 0 broadcasts
};

struct ChainSpec {
  Place output;
  std::vector<std::int64_t> shape;     // axes in the memory order of the result, which is contiguous
  std::vector<ChainOperand> operands;  // along the last axis, elements are adjacent or broadcast
  std::vector<ChainOp> ops;
  bool is_precise = false;
  ChainStart start;  // storage of the first operand; integers are allowed only if it is the only operand
};

// Throws std::invalid_argument for unsupported strides and for operators without their operand.
std::shared_ptr<Step> make_chain_float(const ChainSpec& spec, Isa isa);

}  // namespace tpuconvert
