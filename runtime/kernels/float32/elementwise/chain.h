// Element-wise computations on float32 tensors: a chain of operations on one element after the other.
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
  // With a second operand y, a tensor or the number `a`: x is what the chain has made so far.
  kAdd, kSub, kReverseSub, kMul, kDiv, kReverseDiv,
  // NaN where one of them is NaN; of equal operands the second one, which is y, in the reverse forms x.
  kMax, kMin, kReverseMax, kReverseMin,
  // 1 where the relation holds between x and y, else 0.
  kGreater, kGreaterEqual, kLess, kLessEqual, kEqual, kNotEqual,
  // x > 0 ? y : b, and x > 0 ? b : y.
  kSelect, kReverseSelect,
  // Of x alone.
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
  int operand = -1;      // which operand y is; -1: the number `a`
  double a = 0, b = 0;   // slope, limits, factors
};

// A contiguous run of result elements, and the operands of the operations there.
struct ChainRow {
  const ChainOp* ops = nullptr;
  int op_count = 0;
  const float* const* operands = nullptr;  // where the row of each operand starts; the first one is what the chain starts with
  const bool* are_single = nullptr;        // operands that are one number for the whole row
  float* output = nullptr;
  std::int64_t count = 0;
};

// At most this many elements go through the chain at a time.
constexpr int kChainBlock = 1024;

using ChainFunction = void (*)(const ChainRow& row);
// Writes what `count` stored integers mean.
using ChainReader = void (*)(const ChainStart& start, const std::uint8_t* from, float* to, std::int64_t count);

// Functions whose results decide integers are evaluated by the mathematical library in float64 and rounded once.
struct ChainKernels {
  ChainFunction run;
  ChainFunction run_precise;
  ChainReader read;
};

extern const ChainKernels kChainScalar;
extern const ChainKernels kChainAvx2;
extern const ChainKernels kChainAvx512;

const ChainKernels& chain_kernels(Isa isa);

// One function of `count` elements by the mathematical library.
void apply_precise(const ChainOp& op, const float* from, float* to, std::int64_t count);

struct ChainOperand {
  Place place;
  std::vector<std::int64_t> strides;  // bytes per axis of the shape; 0 repeats
};

struct ChainSpec {
  Place output;
  std::vector<std::int64_t> shape;     // in the order of the memory of the result, which is dense
  std::vector<ChainOperand> operands;  // along the last axis their elements are adjacent, or one is repeated
  std::vector<ChainOp> ops;
  bool is_precise = false;
  ChainStart start;  // how the first operand is stored; where it is integers, it is the only operand
};

// Throws std::invalid_argument for strides that are not possible and operations without their operand.
std::shared_ptr<Step> make_chain_float(const ChainSpec& spec, Isa isa);

}  // namespace tpuconvert
