// The inner loops of element-wise steps, written once and compiled for every instruction set.
//
// A block of at most kBlock elements is held in lanes of 32 bits (an integer or a float32 number each), goes through the
// operations of a step one after the other while it stays in the first-level cache, and is stored once.
#pragma once

#include <cstdint>

#include "core/isa.h"

namespace tpuconvert {

constexpr int kBlock = 512;
constexpr int kLaneGroup = 16;  // loops over lanes may run to the next multiple of it; blocks and parameters have the room
constexpr int kParameters = 5;
constexpr int kSoftmaxRows = 4;

enum class LaneCode {
  kAdd,          // a + b, which the caller has proved to fit 32 bits
  kSubtract,     // a - b, likewise
  kMultiply,     // a * b, likewise
  kAddLimited,   // a + b, saturated to 32 bits
  kSubtractLimited,
  kMultiplyLimited,
  kMaximum,
  kMinimum,
  kShift,        // a / 2^low rounded half up; low 1..31, a + 2^(low - 1) fits
  kAbsolute,     // |a|, a above -2^31
  kAddParameter, // a + parameter 0
  kAddLimitedParameter,  // a + parameter 0, saturated to 32 bits
  kMultiplyParameter,  // a * parameter 0, which fits 32 bits
  kAndParameter,       // the bits that a and parameter 0 share
  kRescale,      // see RescaleParameters
  kLookUp,       // table[a], a in 0..255
  kToFloat,      // float32 nearest to a
  kFromFloat,    // nearest integer, ties away from zero, saturated to 32 bits; NaN gives 0
  kFloatAdd,
  kFloatSubtract,
  kFloatMultiply,
  kFloatMultiplyParameter,  // a * parameter 0
  kFloatAddParameter,       // a + parameter 0
  kFloatClamp,              // limited to parameters 0 and 1 as the operator clamp does: NaN stays, equal takes the limit
  kChooseBySign,            // a where a is not negative, b elsewhere
  kClamp,        // limited to low..high
  kCount
};

// Definition of kRescale, with p = a * multiplier exact in 64 bits:
//   narrow: t = low 32 bits of (p >> first); t >>= second; h = (t + 1) >> 1     one rounding by first + second + 1 bits
//   wide:   t = low 32 bits of ((p + 2^(first + second - 1)) >> first); h = t >> second    one by first + second bits
//   h = (((h - (h < 0)) >> again) + 1) >> 1 where again is not -1               a second one by again + 1 bits
//   result = h + offset
// The first rounding is half up, the second half away from zero. The narrow form needs fewer operations, the wide one half
// the room: it takes all 32 bits. `prepare_rescale` proves that nothing leaves them.
enum RescaleParameter { kMultiplier, kFirst, kSecond, kAgain, kOffset };

struct Lanes {
  const std::int32_t* a = nullptr;
  const std::int32_t* b = nullptr;
  std::int32_t* out = nullptr;
  int count = 0;
  const std::int32_t* parameters[kParameters] = {};
  bool is_per_lane = false;  // one parameter for each lane; otherwise the first counts for all
  bool has_second = false, has_again = false;  // kRescale: whether any lane needs them
  bool is_wide = false;                        // kRescale: the form
  std::int32_t low = 0, high = 0;
  const std::int32_t* table = nullptr;
};

// Values are limited to low..high, then `bias` is added.
struct StoreLimits {
  std::int32_t low = 0, high = 0, bias = 0;
};

// A proved FloatRequant (int8/epilogue.h): v = floor(high_part * x + low_part * x), stored = limit((v + addend) >> 1).
struct FloatRescale {
  float high_part = 0.0f, low_part = 0.0f;
  std::int16_t addend = 0;
  std::uint8_t low = 0, high = 255;
};

// 256 entries of 32 bits, and the same byte by byte: the lowest bytes of all entries, then the next ones.
struct WideTable {
  std::int32_t entries[256];
  std::uint8_t planes[4][256];
};

// A pair of factors of 16 bits as linear_sum takes them.
inline std::int32_t factor_pair(std::int32_t a, std::int32_t b) {
  return static_cast<std::int32_t>((static_cast<std::uint32_t>(a) & 0xffffu) | static_cast<std::uint32_t>(b) << 16);
}

using LaneOperation = void (*)(const Lanes& lanes);

struct ElementKernels {
  LaneOperation operations[static_cast<int>(LaneCode::kCount)];

  // Elements to lanes, plus `bias`. Nothing after the last element is read.
  void (*load_u8)(const std::uint8_t* from, std::int32_t bias, std::int32_t* out, int count);
  void (*load_u16)(const std::uint16_t* from, std::int32_t bias, std::int32_t* out, int count);
  void (*load_i16)(const std::int16_t* from, std::int32_t bias, std::int32_t* out, int count);

  // Lanes limited to low..high, plus `bias`, to elements.
  void (*store_u8)(const std::int32_t* lanes, std::int32_t low, std::int32_t high, std::int32_t bias, std::uint8_t* to,
                   int count);
  void (*store_16)(const std::int32_t* lanes, std::int32_t low, std::int32_t high, std::int32_t bias,
                   std::uint16_t* to, int count);

  // out = a * factor a + b * factor b + parameter 1, of stored bytes. Parameter 0 holds both factors, of 16 bits each, that of
  // b in the upper half; `linear` has a factor of b of 0.
  void (*linear)(const std::uint8_t* a, const Lanes& lanes);
  void (*linear_sum)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes);

  // linear_sum, kRescale (narrow) and store_u8 at once: `sum` holds the parameters of the first, `rescale` of the second.
  // `count` may exceed kBlock.
  void (*residual)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescale,
                   const StoreLimits& limits, std::uint8_t* to, int count);

  // The same where a float form was proved; null where an instruction set has none. `sum` has one number per parameter.
  void (*residual_float)(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const FloatRescale& rescale,
                         std::uint8_t* to, int count);

  // out[i] = table[from[i]]; 256 entries.
  void (*look_up_wide)(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count);

  // to[i] = table[from[i]]; from and to may be the same.
  void (*look_up)(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table);

  // to[i] = limit(nearest(from[i] / divisor * scale) + offset) to low..high, ties away from zero, NaN as 0; offset and
  // limits are in terms of stored bytes, |offset| <= 2^24 - 256.
  void (*quantize)(const float* from, float divisor, float scale, std::int32_t offset, std::int32_t low, std::int32_t high,
                   std::uint8_t* to, int count);

  // to[3 * i + k] = planes[k][i]
  void (*interleave3)(const std::uint8_t* const* planes, std::uint8_t* to, int count);

  // to[i] = the larger, or the smaller, of both, unsigned. `to` may be `a`.
  void (*maximum_u8)(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count);
  void (*minimum_u8)(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count);

  // sums[i] += from[i]
  void (*accumulate_u8)(const std::uint8_t* from, std::int32_t* sums, std::int64_t count);
  void (*accumulate)(const std::int32_t* from, std::int32_t* sums, std::int64_t count);

  // to[i] = limit(nearest((sums[i] - subtracted) / count) + bias) to 0..255, ties away from zero; a count below 1 is 1.
  void (*averages)(const std::int32_t* sums, std::int32_t subtracted, std::int32_t count, std::int32_t bias,
                   std::uint8_t* to, std::int64_t size);

  // Sum, largest and smallest of a row.
  std::int32_t (*sum_of_row)(const std::uint8_t* from, std::int64_t count);
  std::uint8_t (*largest_of_row)(const std::uint8_t* from, std::int64_t count);
  std::uint8_t (*smallest_of_row)(const std::uint8_t* from, std::int64_t count);

  // Rows of softmax_int: t = table[largest of the row - x], to = limit(nearest(t / sum of t * scale) + zero) to 0..255. The
  // sum runs over rising elements. `powers` has room for kSoftmaxRows * count numbers.
  void (*softmax)(const std::uint8_t* from, std::int64_t rows, int count, const float* table, float scale,
                  std::int32_t zero, float* powers, std::uint8_t* to);
};

const ElementKernels& element_kernels_scalar();
const ElementKernels& element_kernels_avx2();
const ElementKernels& element_kernels_avx512();

// The form for an instruction set.
const ElementKernels& element_kernels(Isa isa);

}  // namespace tpuconvert
