// Implementation of epilogue_rows.h. Include after the definition of `Lanes` for an instruction set.
#pragma once

#include <cstddef>

#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {
namespace {

using V = Lanes::V;
constexpr int kLanes = Lanes::kLanes;

template <RowResult Result>
constexpr int kBytesOf = Result == RowResult::kByte ? 1 : Result == RowResult::kWord ? 2 : 4;

// Parameters of adjacent channels in registers.
struct Factors {
  V multiplier, shift, least, most, offset, reach, lift;

  template <bool IsLifted>
  static inline Factors of(const RowParameters& p, int at) {
    Factors f;
    f.multiplier = Lanes::load(p.multiplier + at);
    f.shift = Lanes::load(p.first_shift + at);
    f.least = Lanes::load(p.least + at);
    f.most = Lanes::load(p.most + at);
    f.offset = Lanes::load(p.offset + at);
    f.reach = IsLifted ? Lanes::load(p.reach + at) : f.offset;
    f.lift = IsLifted ? Lanes::load(p.lift + at) : f.offset;
    return f;
  }
};

template <bool RoundsTwice, bool IsLifted>
inline V rescaled(V x, const Factors& f) {
  if constexpr (IsLifted)
    x = Lanes::shift_left_by(
        Lanes::larger(Lanes::smaller(x, f.reach), Lanes::subtract(Lanes::broadcast(-1), f.reach)), f.lift);
  const V high = RoundsTwice ? Lanes::multiply_high(x, f.multiplier) : Lanes::multiply_high_down(x, f.multiplier);
  V value = high;
  // Half away from zero equals half up of the value, minus 1 for negative values.
  if constexpr (RoundsTwice) value = Lanes::add(value, Lanes::sign(value));
  value = Lanes::half_up(Lanes::shift_right_by(value, f.shift));
  if constexpr (RoundsTwice) value = Lanes::where_negative(f.shift, high, value);
  return Lanes::add(Lanes::smaller(Lanes::larger(value, f.least), f.most), f.offset);
}

template <RowResult Result>
inline void store(V value, const RowParameters& p, std::uint8_t* out) {
  if constexpr (Result == RowResult::kByte) {
    Lanes::store_bytes(out, value);
  } else if constexpr (Result == RowResult::kWord) {
    Lanes::store_low_words(out, value);
  } else if constexpr (Result == RowResult::kInteger) {
    Lanes::store(out, value);
  } else {
    Lanes::store_product(out, Lanes::subtract(value, Lanes::broadcast(p.zero)), p.scale);
  }
}

// Stores the first n results.
template <RowResult Result>
inline void store(V value, const RowParameters& p, std::uint8_t* out, int n) {
  if constexpr (Result == RowResult::kWord) {
    Lanes::store_low_words(out, value, n);
  } else {
    alignas(64) std::uint8_t results[kLanes * kBytesOf<Result>];
    store<Result>(value, p, results);
    Lanes::copy(out, results, n * kBytesOf<Result>);
  }
}

template <bool RoundsTwice, RowResult Result, bool IsUniform, bool IsLifted>
void row(const RowParameters& p, int first, const std::int32_t* sums, int count, std::uint8_t* out) {
  Factors factors = Factors::of<IsLifted>(p, first);
  int at = 0;
  for (; at + kLanes <= count; at += kLanes, out += kLanes * kBytesOf<Result>) {
    if constexpr (!IsUniform) factors = Factors::of<IsLifted>(p, first + at);
    store<Result>(rescaled<RoundsTwice, IsLifted>(Lanes::load(sums + at), factors), p, out);
  }
  if (at == count) return;
  if constexpr (!IsUniform) factors = Factors::of<IsLifted>(p, first + at);
  const V rest = rescaled<RoundsTwice, IsLifted>(Lanes::load_first(sums + at, count - at), factors);
  store<Result>(rest, p, out, count - at);
}

// Like `row` for several rows: the parameters of each vector of channels are loaded once.
template <bool RoundsTwice, RowResult Result, bool IsLifted>
void block_of_rows(const RowParameters& given, int first, int count, const RowBlock& block) {
  const RowParameters p = given;  // a local copy, so that stores do not force reloads
  const RowBlock b = block;
  for (int at = 0; at < count; at += kLanes) {
    const Factors factors = Factors::of<IsLifted>(p, first + at);
    const std::size_t offset = b.offset + static_cast<std::size_t>(at) * kBytesOf<Result>;
    const std::int32_t* sums = b.sums + at;
    const int rest = count - at;
    if (rest >= kLanes) {
      for (int row = 0; row < b.rows; ++row, sums += b.stride)
        store<Result>(rescaled<RoundsTwice, IsLifted>(Lanes::load(sums), factors), p, b.outputs[row] + offset);
    } else {
      for (int row = 0; row < b.rows; ++row, sums += b.stride) {
        const V value = rescaled<RoundsTwice, IsLifted>(Lanes::load_first(sums, rest), factors);
        store<Result>(value, p, b.outputs[row] + offset, rest);
      }
    }
  }
}

template <bool RoundsTwice, bool IsLifted>
BlockFunction block_for(RowResult result) {
  switch (result) {
    case RowResult::kByte: return block_of_rows<RoundsTwice, RowResult::kByte, IsLifted>;
    case RowResult::kWord: return block_of_rows<RoundsTwice, RowResult::kWord, IsLifted>;
    case RowResult::kInteger: return block_of_rows<RoundsTwice, RowResult::kInteger, IsLifted>;
    case RowResult::kReal: return block_of_rows<RoundsTwice, RowResult::kReal, IsLifted>;
  }
  return nullptr;
}

inline BlockFunction block_for(const RowVariant& variant) {
  if (variant.rounds_twice)
    return variant.is_lifted ? block_for<true, true>(variant.result) : block_for<true, false>(variant.result);
  return variant.is_lifted ? block_for<false, true>(variant.result) : block_for<false, false>(variant.result);
}

template <bool RoundsTwice, bool IsUniform, bool IsLifted>
RowFunction function_for(RowResult result) {
  switch (result) {
    case RowResult::kByte: return row<RoundsTwice, RowResult::kByte, IsUniform, IsLifted>;
    case RowResult::kWord: return row<RoundsTwice, RowResult::kWord, IsUniform, IsLifted>;
    case RowResult::kInteger: return row<RoundsTwice, RowResult::kInteger, IsUniform, IsLifted>;
    case RowResult::kReal: return row<RoundsTwice, RowResult::kReal, IsUniform, IsLifted>;
  }
  return nullptr;
}

template <bool RoundsTwice>
RowFunction function_for(const RowVariant& variant) {
  if (variant.is_lifted)
    return variant.is_uniform ? function_for<RoundsTwice, true, true>(variant.result)
                           : function_for<RoundsTwice, false, true>(variant.result);
  return variant.is_uniform ? function_for<RoundsTwice, true, false>(variant.result)
                         : function_for<RoundsTwice, false, false>(variant.result);
}

inline RowFunction function_for(const RowVariant& variant) {
  return variant.rounds_twice ? function_for<true>(variant) : function_for<false>(variant);
}

}  // namespace
}  // namespace tpuconvert
