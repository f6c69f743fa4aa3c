// Element-wise kernels over the vector types of one instruction set; included by one file per instruction set, after its
// vector header.
#pragma once

#include <cmath>

#include "float32/elementwise/chain.h"
#include "float32/epilogue.h"
#include "float32/elementwise/functions.h"
#include "float32/elementwise/sigmoid.h"

namespace tpuconvert {
namespace {

// to[i] = function(from[i])
template <typename F>
FLOAT_INLINE void map_row(const float* from, float* to, std::int64_t count, F&& function) {
  std::int64_t i = 0;
  for (; i + Float::kLanes <= count; i += Float::kLanes) function(Float::load(from + i)).store(to + i);
  const int left = static_cast<int>(count - i);
  if (left > 0) function(Float::load_first(from + i, left)).store_first(to + i, left);
}

// Like map_row, for a function of float64 vectors.
template <typename F>
FLOAT_INLINE void map_wide(const float* from, float* to, std::int64_t count, F&& function) {
  map_row(from, to, count, [&](Float x) __attribute__((always_inline)) {
    Double halves[2];
    widen(x, halves);
    halves[0] = function(halves[0]);
    halves[1] = function(halves[1]);
    return narrow(halves);
  });
}

// to[i] = function(from[i], y[i]), or function(from[i], y[0]) for a single y.
template <typename F>
FLOAT_INLINE void map_pairs(const float* from, const float* y, bool is_single, float* to, std::int64_t count, F&& function) {
  if (is_single) {
    const Float all = Float::broadcast(*y);
    map_row(from, to, count, [&](Float x) __attribute__((always_inline)) { return function(x, all); });
    return;
  }
  std::int64_t i = 0;
  for (; i + Float::kLanes <= count; i += Float::kLanes)
    function(Float::load(from + i), Float::load(y + i)).store(to + i);
  const int left = static_cast<int>(count - i);
  if (left > 0) function(Float::load_first(from + i, left), Float::load_first(y + i, left)).store_first(to + i, left);
}

FLOAT_INLINE Float maximum(Float a, Float b) { return select(is_nan(a), a, larger(a, b)); }
FLOAT_INLINE Float minimum(Float a, Float b) { return select(is_nan(a), a, smaller(a, b)); }

// Rounds to the nearest integer, ties away from zero; zeros are positive.
FLOAT_INLINE Float round_half_away(Float x) {
  const Float whole = round_to_zero(x);
  const Float away = whole + with_sign_of(Float::broadcast(1.0f), x);
  return select(magnitude(x - whole) >= Float::broadcast(0.5f), away, whole) + Float::zero();
}

#define CHAIN_PAIRS(kind, expression)                                                                           \
  case ChainKind::kind:                                                                                         \
    map_pairs(from, y, is_single, to, count,                                                                    \
              [&](Float x, Float y) __attribute__((always_inline)) { return expression; });                     \
    return true;
#define CHAIN_ROW(kind, expression)                                                               \
  case ChainKind::kind:                                                                           \
    map_row(from, to, count, [&](Float x) __attribute__((always_inline)) { return expression; }); \
    return true;
#define CHAIN_WIDE(kind, expression)                                                                \
  case ChainKind::kind:                                                                             \
    map_wide(from, to, count, [&](Double x) __attribute__((always_inline)) { return expression; }); \
    return true;

// Applies an operation that is the same in both precisions. Returns false for the others.
__attribute__((noinline)) bool apply_exact(const ChainOp& op, const float* from, const float* y, bool is_single, float* to,
                                           std::int64_t count) {
  const Float a = Float::broadcast(static_cast<float>(op.a)), b = Float::broadcast(static_cast<float>(op.b));
  const Float zero = Float::zero(), one = Float::broadcast(1.0f);
  switch (op.kind) {
    CHAIN_PAIRS(kAdd, x + y)
    CHAIN_PAIRS(kSub, x - y)
    CHAIN_PAIRS(kReverseSub, y - x)
    CHAIN_PAIRS(kMul, x * y)
    CHAIN_PAIRS(kDiv, x / y)
    CHAIN_PAIRS(kReverseDiv, y / x)
    CHAIN_PAIRS(kMax, maximum(x, y))
    CHAIN_PAIRS(kMin, minimum(x, y))
    CHAIN_PAIRS(kReverseMax, maximum(y, x))
    CHAIN_PAIRS(kReverseMin, minimum(y, x))
    CHAIN_PAIRS(kGreater, select(y < x, one, zero))
    CHAIN_PAIRS(kGreaterEqual, select(x >= y, one, zero))
    CHAIN_PAIRS(kLess, select(x < y, one, zero))
    CHAIN_PAIRS(kLessEqual, select(y >= x, one, zero))
    CHAIN_PAIRS(kEqual, select(x >= y, select(y >= x, one, zero), zero))
    CHAIN_PAIRS(kNotEqual, select(x >= y, select(y >= x, zero, one), one))
    CHAIN_PAIRS(kSelect, select(zero < x, y, b))
    CHAIN_PAIRS(kReverseSelect, select(zero < x, b, y))
    CHAIN_ROW(kRelu, larger(zero, x) + zero)
    CHAIN_ROW(kLeakyRelu, select(x >= zero, x, a * x))
    CHAIN_ROW(kClamp, minimum(maximum(x, a), b))
    CHAIN_ROW(kAbs, magnitude(x))
    CHAIN_ROW(kSquare, x * x)
    CHAIN_ROW(kSqrt, root(x))
    CHAIN_ROW(kRound, round_half_away(x))
    CHAIN_ROW(kCeil, round_up(x))
    CHAIN_ROW(kFloor, round_down(x))
    CHAIN_WIDE(kReciprocalSqrt, constant(1.0) / root(x))
    CHAIN_WIDE(kHardSigmoid, hard_sigmoid(x, op.a, op.b))
    CHAIN_WIDE(kHardSwish, hard_swish(x))
    default:
      return false;
  }
}

// Applies a transcendental function in the faster precision. Returns false for those that have none.
inline bool apply_fast(const ChainOp& op, const float* from, float* to, std::int64_t count) {
  switch (op.kind) {
    CHAIN_WIDE(kExp, exponential(x))
    CHAIN_WIDE(kLog, logarithm(x))
    CHAIN_WIDE(kTanh, hyperbolic_tangent(x))
    CHAIN_ROW(kSigmoid, sigmoid(x))
    CHAIN_WIDE(kElu, select(constant(0.0) < x, x, exponential_minus_one(x)))
    CHAIN_WIDE(kGelu, gelu(x))
    CHAIN_WIDE(kGeluTanh, gelu_by_tangent(x))
    CHAIN_WIDE(kSilu, silu(x, op.a))
    CHAIN_WIDE(kSoftplus, softplus(x))
    CHAIN_WIDE(kMish, mish(x))
    default:
      return false;
  }
}

#undef CHAIN_PAIRS
#undef CHAIN_ROW
#undef CHAIN_WIDE

template <bool kPrecise>
void run_chain(const ChainRow& row) {
  alignas(64) float between[kChainBlock];
  for (std::int64_t start = 0; start < row.count; start += kChainBlock) {
    const std::int64_t left = row.count - start, count = left < kChainBlock ? left : kChainBlock;
    const float* from = row.operands[0] + (row.are_single[0] ? 0 : start);
    if (row.are_single[0]) {
      map_row(between, between, count, [&](Float) { return Float::broadcast(*from); });
      from = between;
    }
    for (int index = 0; index < row.op_count; ++index) {
      const ChainOp& op = row.ops[index];
      const float number = static_cast<float>(op.a);
      const bool is_single = op.operand < 0 || row.are_single[op.operand];
      const float* y = op.operand < 0 ? &number : row.operands[op.operand] + (is_single ? 0 : start);
      float* to = index + 1 == row.op_count ? row.output + start : between;
      if (!apply_exact(op, from, y, is_single, to, count) && (kPrecise || !apply_fast(op, from, to, count)))
        apply_precise(op, from, to, count);
      from = to;
    }
  }
}

// Converts stored integers to float32. `meaning` dequantizes one vector.
template <typename T, typename F>
FLOAT_INLINE void read_integers(const T* from, float* to, std::int64_t count, F&& meaning) {
  if (count < Float::kLanes) {
    T few[Float::kLanes] = {};
    for (std::int64_t i = 0; i < count; ++i) few[i] = from[i];
    return meaning(Float::of_integers(few)).store_first(to, static_cast<int>(count));
  }
  for (std::int64_t i = 0; i + Float::kLanes < count; i += Float::kLanes)
    meaning(Float::of_integers(from + i)).store(to + i);
  const std::int64_t last = count - Float::kLanes;  // the last full vector, which may overlap the previous one
  meaning(Float::of_integers(from + last)).store(to + last);
}

template <typename T>
FLOAT_INLINE void read_integers(const ChainStart& start, const T* from, float* to, std::int64_t count) {
  const Float zero = Float::broadcast(static_cast<float>(start.zero)), scale = Float::broadcast(start.scale);
  if (start.zero == 0) return read_integers(from, to, count, [&](Float x) __attribute__((always_inline)) { return x * scale; });
  read_integers(from, to, count, [&](Float x) __attribute__((always_inline)) { return (x - zero) * scale; });
}

inline void read_chain(const ChainStart& start, const std::uint8_t* from, float* to, std::int64_t count) {
  switch (start.source) {
    case ChainSource::kByte:
      return read_integers(start, from, to, count);
    case ChainSource::kWord:
      return read_integers(start, reinterpret_cast<const std::uint16_t*>(from), to, count);
    case ChainSource::kSignedWord:
      return read_integers(start, reinterpret_cast<const std::int16_t*>(from), to, count);
    case ChainSource::kReal:
      return;
  }
}

}  // namespace
}  // namespace tpuconvert
