// Vectorized fixed-point requantization of a row of accumulators, for any result size.
//
// Contains only plain data and plain functions: code compiled for an instruction set must not share inline functions
// with the baseline.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert {

enum class RowResult { kByte, kWord, kInteger, kReal };

// Maximum number of lanes. Parameter vectors have this many elements more than there are channels.
constexpr int kRowLanes = 16;

// Parameters with one element per channel. With hi = x * multiplier / 2^31,
//   one rounding    value = half_up(hi, first_shift + 1), hi rounded down
//   two roundings   value = half_away(hi, first_shift + 1), hi rounded half up; value = hi if first_shift is -1
//   result = min(max(value, least), most) + offset, which fits 32 bits
//   float result = (result - zero) * scale in float32
// For factors above one half, x is first clamped to -1 - reach..reach, beyond which every result is clamped, and
// shifted left by `lift`. Multipliers are not negative, so that no step overflows 32 bits for any x.
struct RowParameters {
  const std::int32_t* reach;       // null, like `lift`, if no factor is above one half
  const std::int32_t* lift;
  const std::int32_t* multiplier;
  const std::int32_t* first_shift;  // 0..30, or -1
  const std::int32_t* least;        // limits of the result minus the offset
  const std::int32_t* most;
  const std::int32_t* offset;
  std::int32_t zero;  // |result - zero| < 2^31
  float scale;
  // For block_function_avx512: floor(factor * float(x) + addend), where the multiply-add rounds down once, clamped to
  // low..high.
  const float* factor;
  const float* addend;
  float low, high;
};

// Requantizes `count` sums. The first one belongs to channel `first`.
using RowFunction = void (*)(const RowParameters& parameters, int first, const std::int32_t* sums, int count,
                             std::uint8_t* out);

// Rows of sums with a distance of `stride` elements. The results of row r are stored at outputs[r] + offset.
struct RowBlock {
  const std::int32_t* sums;
  std::ptrdiff_t stride;
  int rows;
  std::uint8_t* const* outputs;
  std::size_t offset;
};

// Like RowFunction for several rows, with parameters loaded once.
using BlockFunction = void (*)(const RowParameters& parameters, int first, int count, const RowBlock& block);

struct RowVariant {
  bool rounds_twice;
  bool is_uniform;  // all channels have the same parameters
  bool is_lifted;
  RowResult result;
};

RowFunction row_function_avx2(const RowVariant& variant);
RowFunction row_function_avx512(const RowVariant& variant);
BlockFunction block_of_rows_avx2(const RowVariant& variant);
BlockFunction block_of_rows_avx512(const RowVariant& variant);
RowFunction row_function_neon(const RowVariant& variant);
BlockFunction block_of_rows_neon(const RowVariant& variant);
// With `factor` and `addend`.
BlockFunction block_function_avx512(RowResult result);

}  // namespace tpuconvert
