// Implementation of residual_rows.h. Include after the definition of `Lanes` for an instruction set.
#pragma once

#include <cstddef>

#include "int8/epilogue/residual_rows.h"

namespace tpuconvert {
namespace {

using V = Lanes::V;
using Pairs = Lanes::Pairs;
using Bytes = Lanes::Bytes;
constexpr int kLanes = Lanes::kLanes, kVectors = Lanes::kVectors, kGroups = Lanes::kGroups;
constexpr std::size_t kBytes = Lanes::kBytes;

// Parameters of kBytes elements. residual.cpp has written them in the order of Lanes::pair.
struct Parameters {
  Pairs factors[kGroups];
  V offsets[kGroups][kVectors];

  static inline __attribute__((always_inline)) Parameters at(const ResidualRows& work, std::size_t first) {
    Parameters p;
    for (int group = 0; group < kGroups; ++group) {
      const std::size_t lane = first + static_cast<std::size_t>(group * kVectors * kLanes);
      p.factors[group] = Lanes::load_factors(work.factors + lane);
      for (int k = 0; k < kVectors; ++k) p.offsets[group][k] = Lanes::load(work.offsets + lane + k * kLanes);
    }
    return p;
  }
};

struct Limits {
  int shift;
  Bytes low, high;
};

inline __attribute__((always_inline)) Bytes add(Bytes x, Bytes y, const Parameters& p, const Limits& limits) {
  Pairs pairs[kGroups];
  Lanes::pair(x, y, pairs);
  V sums[kGroups][kVectors];
  for (int group = 0; group < kGroups; ++group) {
    for (int k = 0; k < kVectors; ++k) sums[group][k] = p.offsets[group][k];
    Lanes::add_products<true>(sums[group], pairs[group], p.factors[group]);
    for (V& sum : sums[group]) sum = Lanes::shift_right(sum, limits.shift);
  }
  return Lanes::clamp_bytes(Lanes::pack(sums), limits.low, limits.high);
}

// Adds rows with the parameters that `next` returns for each register of bytes.
template <typename Next>
inline __attribute__((always_inline)) void add_rows(const ResidualRows& work, Next next) {
  const Limits limits{work.shift, Lanes::broadcast_byte(work.low), Lanes::broadcast_byte(work.high)};
  for (int row = 0; row < work.rows; ++row) {
    std::uint8_t* bytes = work.bytes[row] + work.offset;
    const std::uint8_t* others = work.others[row] + work.offset;
    std::size_t at = 0, place = 0;
    for (; at + kBytes <= work.count; at += kBytes) {
      const Bytes x = Lanes::load_register(bytes + at), y = Lanes::load_register(others + at);
      Lanes::store_register(bytes + at, add(x, y, next(&place), limits));
    }
    const int rest = static_cast<int>(work.count - at);
    if (rest == 0) continue;
    const Bytes x = Lanes::load_register(bytes + at, rest), y = Lanes::load_register(others + at, rest);
    Lanes::store_register(bytes + at, add(x, y, next(&place), limits), rest);
  }
}

void residual(const ResidualRows& work) {
  const std::size_t period = static_cast<std::size_t>(work.blocks) * kResidualBlock;
  if (period == kBytes) {  // the parameters stay in registers
    const Parameters p = Parameters::at(work, 0);
    add_rows(work, [&](std::size_t*) -> const Parameters& { return p; });
  } else {
    add_rows(work, [&](std::size_t* place) {
      const Parameters p = Parameters::at(work, *place);
      *place = *place + kBytes == period ? 0 : *place + kBytes;
      return p;
    });
  }
}

}  // namespace
}  // namespace tpuconvert
