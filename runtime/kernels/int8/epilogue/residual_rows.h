// The vector form of residual sums. Plain data and plain functions only: code compiled for an instruction set must not
// share inline functions with the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

constexpr int kResidualBlock = 64;  // bytes whose parameters lie together

struct ResidualRows {
  const std::int32_t* factors;  // [block][kResidualBlock], pairs of 16 bits: that of the other tensor in the upper half
  const std::int32_t* offsets;  // the same
  int blocks;                   // number of blocks after which the parameters repeat
  int shift;
  std::uint8_t low, high;
  int rows;
  std::size_t count;   // bytes of a row
  std::size_t offset;  // added to each address
  std::uint8_t* const* bytes;
  const std::uint8_t* const* others;
};

using ResidualFunction = void (*)(const ResidualRows& rows);

void residual_scalar(const ResidualRows& rows);
void residual_avx2(const ResidualRows& rows);
void residual_avx512(const ResidualRows& rows);

}  // namespace tpuconvert
