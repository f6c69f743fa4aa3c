// Vectorized fixed-point requantization of a row of accumulators, for any result size.
//
// Plain data and plain functions only: code compiled for an instruction set must not share inline functions with the
// baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

enum class RowResult { kByte, kWord, kInteger, kReal };

// At most this many lanes; parameters have as many elements more than there are channels.
constexpr int kRowLanes = 16;

// Parameters, one per channel. With hi = x * multiplier / 2^31, rounded down or half up,
//   once   value = half_up(hi, first_shift + 1)
//   twice  value = half_away(hi, first_shift + 1), hi half up; first_shift -1 leaves hi as it is
// limited to least..most, plus offset, which does not overflow 32 bits; float results are (that - zero) * scale in float32.
// Factors above one half first limit x to -1 - reach..reach, beyond which every result is limited, and shift it left.
// Multipliers are not negative, so that no step overflows 32 bits for any x.
struct RowParameters {
  const std::int32_t* reach;       // null, with `lift`, where no factor is that large
  const std::int32_t* lift;
  const std::int32_t* multiplier;
  const std::int32_t* first_shift;  // 0..30, or -1
  const std::int32_t* least;        // the limits of the result minus the offset
  const std::int32_t* most;
  const std::int32_t* offset;
  std::int32_t zero;  // |result - zero| < 2^31
  float scale;
  // For block_function_avx512: floor(factor * float(x) + addend), rounded downwards once, limited to low..high.
  const float* factor;
  const float* addend;
  float low, high;
};

// `count` sums, the first of them for the channel `first`.
using RowFunction = void (*)(const RowParameters& parameters, int first, const std::int32_t* sums, int count,
                             std::uint8_t* out);

// Rows of sums, `stride` elements apart, whose results go to `outputs` plus `offset` bytes.
struct RowBlock {
  const std::int32_t* sums;
  std::ptrdiff_t stride;
  int rows;
  std::uint8_t* const* outputs;
  std::size_t offset;
};

// The same for several rows, whose parameters are read once.
using BlockFunction = void (*)(const RowParameters& parameters, int first, int count, const RowBlock& block);

struct RowVariant {
  bool rounds_twice;
  bool is_uniform;  // all channels have the same parameters
  bool is_lifted;
  RowResult result;
};

RowFunction row_function_avx2(const RowVariant& variant);
RowFunction row_function_avx512(const RowVariant& variant);
BlockFunction block_function_avx512(RowResult result);

}  // namespace tpuconvert
