// The inner loops of element-wise steps, written once and compiled for every instruction set.
//
// A block of at most kBlock elements is converted to 32-bit lanes (int32 or float32). All operations of a step are
// applied while the block is in the first-level cache, and the result is stored once.
#pragma once

#include <cstdint>

#include "core/isa.h"

namespace tpuconvert {

// a + b modulo 2^32, for arguments whose sum the caller has not proved to fit.
inline std::int32_t wrapping_sum(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

constexpr int kBlock = 512;
// loops over lanes may run to the next multiple; blocks and parameters have space for it
constexpr int kLaneGroup = 16;
constexpr int kParameters = 5;
constexpr int kSoftmaxRows = 4;

enum class LaneCode {
  kAdd,          // a + b; the caller has proved that it fits 32 bits
  kSubtract,     // a - b; the caller has proved that it fits 32 bits
  kMultiply,     // a * b; the caller has proved that it fits 32 bits
  kAddLimited,   // a + b, saturated to 32 bits
  kSubtractLimited,
  kMultiplyLimited,
  kMaximum,
  kMinimum,
  kShift,        // a / 2^low, rounded half up; 1 <= low <= 31, and a + 2^(low - 1) fits 32 bits
  kAbsolute,     // |a| for a > -2^31
  kAddParameter, // a + parameter 0, which fits 32 bits
  kAddLimitedParameter,  // a + parameter 0, saturated to 32 bits
  kMultiplyParameter,  // a * parameter 0, which fits 32 bits
  kAndParameter,       // a & parameter 0
  kRescale,      // see RescaleParameter
  kLookUp,       // table[a], 0 <= a <= 255
  kGather,       // table[min(max(a, 0), low)], where `low` is the last index
  kToFloat,      // a, rounded to float32
  kFromFloat,    // a, rounded to the nearest integer, ties away from zero, saturated to 32 bits; NaN gives 0
  kFloatAdd,
  kFloatSubtract,
  kFloatMultiply,
  kFloatMultiplyParameter,  // a * parameter 0
  kFloatAddParameter,       // a + parameter 0
  kFloatClamp,  // min(max(a, parameter 0), parameter 1); NaN propagates, and a zero equal to a limit becomes the limit
  kChooseBySign,            // a >= 0 ? a : b
  kClamp,        // min(max(a, low), high)
  kCount
};

// Definition of kRescale, with p = a * multiplier exact in 64 bits:
//   narrow: t = low 32 bits of (p >> first); t >>= second; h = (t + 1) >> 1
//           rounds by first + second + 1 bits
//   wide:   t = low 32 bits of ((p + 2^(first + second - 1)) >> first); h = t >> second
//           rounds by first + second bits
//   then, unless again is -1: h = (((h - (h < 0)) >> again) + 1) >> 1
//           rounds a second time, by again + 1 bits
//   result = h + offset
// The first rounding is half up, the second one half away from zero. The narrow form needs fewer operations, but leaves
// one of the 32 bits unused; the wide form uses all of them. `prepare_rescale` proves that no value overflows.
enum RescaleParameter { kMultiplier, kFirst, kSecond, kAgain, kOffset };

struct Lanes {
  const std::int32_t* a = nullptr;
  const std::int32_t* b = nullptr;
  std::int32_t* out = nullptr;
  int count = 0;
  const std::int32_t* parameters[kParameters] = {};
  bool is_per_lane = false;  // one parameter per lane; otherwise only the first one is used
  bool has_second = false, has_again = false;  // kRescale: true if a lane needs this shift
  bool is_wide = false;                        // kRescale: the wide form
  std::int32_t low = 0, high = 0;
  const std::int32_t* table = nullptr;
};

// stored = min(max(value, low), high) + bias.
struct StoreLimits {
  std::int32_t low = 0, high = 0, bias = 0;
};

// Coefficients of a proved FloatRequant (int8/epilogue/epilogue.h): v = floor(high_part * x + low_part * x), stored =
// min(max((v + addend) >> 1, low), high).
struct FloatRescale {
  float high_part = 0.0f, low_part = 0.0f;
  std::int16_t addend = 0;
  std::uint8_t low = 0, high = 255;
};

// A table of 256 entries of 32 bits. planes[k] contains byte k of every entry, starting with the least significant one.
struct WideTable {
  std::int32_t entries[256];
  std::uint8_t planes[4][256];
};

// Packs two 16-bit scales into the parameter of linear_sum.
inline std::int32_t factor_pair(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(a) & 0xffffu) | static_cast<std::uint32_t>(b) << 16);
}

using LaneOperation = void (*)(const Lanes& lanes);

struct ElementKernels {
  LaneOperation operations[static_cast<int>(LaneCode::kCount)];

  // Load elements to lanes and add `bias`. They read nothing after the last element.
  void (*load_u8)(const std::uint8_t* from, std::int32_t bias, std::int32_t* out, int count);
  void (*load_u16)(const std::uint16_t* from, std::int32_t bias, std::int32_t* out, int count);
  void (*load_i16)(const std::int16_t* from, std::int32_t bias, std::int32_t* out, int count);

  // Clamp lanes to low..high, add `bias`, and store them as elements.
  void (*store_u8)(const std::int32_t* lanes, std::int32_t low, std::int32_t high, std::int32_t bias, std::uint8_t* to,
                   int count);
  void (*store_16)(const std::int32_t* lanes, std::int32_t low, std::int32_t high, std::int32_t bias,
                   std::uint16_t* to, int count);

  // out = a * scale a + b * scale b + parameter 1, for stored bytes a and b. Parameter 0 contains both scales as 16-bit
  // values, scale b in the upper half. For `linear`, scale b is 0.
  void (*linear)(const std::uint8_t* a, const Lanes& lanes);
  void (*linear_sum)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes);

  // linear_sum, narrow kRescale and store_u8 in one pass. `sum` contains the parameters of linear_sum, `rescale` those
  // of kRescale. `count` may exceed kBlock.
  void (*residual)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescale,
                   const StoreLimits& limits, std::uint8_t* to, int count);

  // Like `residual`, with a proved float rescale; null if the instruction set has no implementation. The parameters of
  // `sum` are scalars.
  void (*residual_float)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const FloatRescale& rescale,
                         std::uint8_t* to, int count);

  // out[i] = table[from[i]].
  void (*look_up_wide)(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count);

  // to[i] = table[from[i]] with 256 entries; `to` may equal `from`.
  void (*look_up)(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table);

  // to[i] = min(max(nearest(from[i] / divisor * scale) + offset, low), high). Ties round away from zero, NaN is
  // converted to 0. `offset` and the limits refer to stored bytes; |offset| <= 2^24 - 256.
  void (*quantize)(const float* from, float divisor, float scale, std::int32_t offset, std::int32_t low, std::int32_t high,
                   std::uint8_t* to, int count);

  // to[3 * i + k] = planes[k][i]
  void (*interleave3)(const std::uint8_t* const* planes, std::uint8_t* to, int count);

  // to[i] = max(a[i], b[i]) and min(a[i], b[i]), unsigned. `to` may equal `a`.
  void (*maximum_u8)(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count);
  void (*minimum_u8)(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count);

  // to[i] = max(a[i], b[i]), signed. `to` may equal `a`.
  void (*maximum_i16)(const std::int16_t* a, const std::int16_t* b, std::int16_t* to, std::int64_t count);

  // sums[i] += from[i]
  void (*accumulate_u8)(const std::uint8_t* from, std::int32_t* sums, std::int64_t count);
  void (*accumulate)(const std::int32_t* from, std::int32_t* sums, std::int64_t count);

  // to[i] = nearest((sums[i] - subtracted) / max(count, 1)) + bias, clamped to 0..255. Ties round away from zero.
  void (*averages)(const std::int32_t* sums, std::int32_t subtracted, std::int32_t count, std::int32_t bias,
                   std::uint8_t* to, std::int64_t size);

  // Sum, maximum and minimum of a row.
  std::int32_t (*sum_of_row)(const std::uint8_t* from, std::int64_t count);
  std::uint8_t (*largest_of_row)(const std::uint8_t* from, std::int64_t count);
  std::uint8_t (*smallest_of_row)(const std::uint8_t* from, std::int64_t count);

  // softmax_int for each row: t[i] = table[max(x) - x[i]], to[i] = nearest(t[i] / sum(t) * scale) + zero, clamped to
  // 0..255. The sum is in ascending order of i. `powers` is scratch memory for kSoftmaxRows * count floats.
  void (*softmax)(const std::uint8_t* from, std::int64_t rows, int count, const float* table, float scale,
                  std::int32_t zero, float* powers, std::uint8_t* to);
};

const ElementKernels& element_kernels_scalar();
const ElementKernels& element_kernels_avx2();
const ElementKernels& element_kernels_avx512();
const ElementKernels& element_kernels_neon();

// Returns the kernels for an instruction set.
const ElementKernels& element_kernels(Isa isa);

}  // namespace tpuconvert
