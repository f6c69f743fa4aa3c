// Vector kernels of the residual add. Contains only plain data and plain functions: code compiled for an instruction
// set must not share inline functions with the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

constexpr int kResidualBlock = 64;  // bytes per block of parameters

struct ResidualRows {
  // [block][kResidualBlock], two 16-bit multipliers each, that of the other tensor in the upper half
  const std::int32_t* factors;
  const std::int32_t* offsets;  // [block][kResidualBlock]
  int blocks;                   // number of blocks; parameters repeat after the last one
  int shift;
  std::uint8_t low, high;
  int rows;
  std::size_t count;   // bytes of a row
  std::size_t offset;  // added to each address of a row
  std::uint8_t* const* bytes;
  const std::uint8_t* const* others;
};

using ResidualFunction = void (*)(const ResidualRows& rows);

void residual_scalar(const ResidualRows& rows);
void residual_avx2(const ResidualRows& rows);
void residual_avx512(const ResidualRows& rows);
void residual_neon(const ResidualRows& rows);

}  // namespace tpuconvert
