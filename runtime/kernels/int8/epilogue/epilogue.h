// Epilogue of integer linear operators: requantization of 32-bit accumulators to stored integers, as defined by the TPU
// operator set.
//
// Every requantization is a monotone function of the accumulator. `apply` is the scalar definition and equals the NumPy
// references. Vector kernels use exact implementations, or a cheaper one that was proved equal for the given channels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {

// Requantizations of requant_int32 and requant_fp32_to_int, and the calculation modes of conv and matrix_mul.
enum class Rescale {
  kNone,           // the accumulator itself
  kTwoRoundings,   // requant_int32 TFLITE, TFLITE_LSHIFT: half up by 31 bits, saturate, half away by -shift
  kOneRounding,    // requant_int32 MULTIPLIER_SHIFT: one rounding of sum * multiplier * 2^shift in `rounding`
  kLowPrecision,   // mode 0: rounding shift, clamp to the result type, 7-bit multiplier
  kHighSymmetric,  // mode 1: rounding shift, clamp to 16 bits, float32 scale, late bias
  kFloat,          // requant_fp32_to_int: nearest(float(sum) * scale), ties away from zero
};

// The values are those of schema/arithmetic/fixed_point.py.
enum class Rounding { kHalfToEven = 0, kHalfAwayFromZero, kTowardsZero, kDown, kUp, kHalfUp, kHalfDown };

// stored = min(max(rescaled + offset, low), high), followed by lut[stored] if there is a table. `offset`, `low`, `high`
// and the table refer to stored values, which include 128 for an INT8 result. Vectors have one element, or one per
// output channel; those that `rescale` does not use are empty.
struct EpilogueSpec {
  Rescale rescale = Rescale::kNone;
  Rounding rounding = Rounding::kHalfUp;
  std::vector<std::int32_t> multiplier;
  std::vector<std::int32_t> shift;   // left shift if positive, as the operator's attribute
  std::vector<std::int32_t> offset;
  float scale = 1.0f;                // only for kLowPrecision, kHighSymmetric, kFloat
  // Added in float32 before the last rounding. kHighSymmetric: float(bias) * scale in float32. kFloat: any value.
  std::vector<float> late_bias;
  int narrow_low = 0;                // kLowPrecision: range of the result type, clamps the first stage
  int narrow_high = 0;
  std::int64_t low = 0;              // limits of the stored result
  std::int64_t high = 255;
  int bytes = 1;                     // size of a stored element: 1 (unsigned), 2 or 4 (signed or unsigned)
  std::vector<std::uint8_t> lut;     // 256 entries or empty; only if bytes = 1
  bool is_dequantized = false;              // the result is float32: (stored - output_zero) * output_scale
  std::int32_t output_zero = 0;
  float output_scale = 1.0f;
};

// Replaces the rounding by kHalfUp if no value of magnitude at most `largest` is a tie in any channel: without ties,
// all roundings to nearest are equal.
EpilogueSpec without_ties(EpilogueSpec spec, std::int64_t largest);

// The scalar definition of an epilogue, prepared for fast evaluation.
class Epilogue {
 public:
  Epilogue() = default;
  // `isa` selects the implementation of apply_row and does not change results. Throws std::invalid_argument for
  // parameters outside the limits of the operator set and for vectors of the wrong length.
  Epilogue(EpilogueSpec spec, int channels, Isa isa = Isa::kScalar);

  const EpilogueSpec& spec() const { return spec_; }
  int channels() const { return channels_; }
  int bytes() const { return spec_.bytes; }

  // Stored result of one accumulator; for a float result, its bits.
  std::int64_t apply(std::int32_t sum, int channel) const;

  // Calls apply() for `count` adjacent channels, starting at `channel`, and writes elements of bytes() bytes.
  void apply_row(const std::int32_t* sums, int channel, int count, std::uint8_t* out) const;

  // Like apply_row, for several rows.
  void apply_rows(const RowBlock& block, int channel, int count) const;

  // Result before the lookup table or dequantization.
  std::int64_t before_table(std::int32_t sum, int channel) const;

  // kLowPrecision, kHighSymmetric: bits of the first rounding shift, and the remaining scale 2^first_shift() * scale in
  // 128ths, truncated to an integer. 128 means 1, so that there is no second rounding.
  int first_shift() const { return first_shift_; }
  std::int64_t rest_in_128ths() const { return rest_in_128ths_; }

  // Parameter of a channel, from a vector with one element or one per channel.
  std::int32_t multiplier(int channel) const { return pick(spec_.multiplier, channel); }
  std::int32_t shift(int channel) const { return pick(spec_.shift, channel); }
  std::int32_t offset(int channel) const { return pick(spec_.offset, channel); }
  float late_bias(int channel) const { return spec_.late_bias.empty() ? 0.0f : pick(spec_.late_bias, channel); }

 private:
  template <typename T>
  static T pick(const std::vector<T>& values, int channel) {
    return values.empty() ? T{} : values.size() == 1 ? values[0] : values[static_cast<std::size_t>(channel)];
  }

  std::int64_t rescale(std::int32_t sum, int channel) const;
  void prepare_rows(Isa isa);
  bool find_factors(std::vector<float>* factor, std::vector<float>* addend) const;

  // Parameters of a vector implementation, shared by copies of an epilogue.
  struct Rows {
    std::vector<std::int32_t> reach, lift, multiplier, first_shift, least, most, offset;
    std::vector<float> factor, addend;  // only if `block` is not null
    RowParameters parameters;
    RowFunction function;
    BlockFunction rows;             // the same results as `function`
    BlockFunction block = nullptr;  // kernel with one float factor, or null
  };

  std::shared_ptr<const Rows> rows_;
  EpilogueSpec spec_;
  int channels_ = 1;
  int first_shift_ = 0;
  std::int64_t rest_in_128ths_ = 128;
  double power_ = 1.0;           // 2^first_shift
  bool is_plain_ = false;        // kOneRounding with half up, and only right shifts of at most 62 bits
  bool is_identity_ = false;     // kNone with 32-bit results, without offset and clamp
};

// Coefficients of the float requantization of one channel. x is the accumulator; high_part + low_part is twice the
// factor.
//   v = floor(high_part * x + low_part * x)
//   stored = min(max((v + 1 + 2 * offset) >> 1, low), high)
// low_part * x is rounded to nearest in float32. The fused multiply-add and the floor round towards minus infinity.
struct FloatRequant {
  float high_part = 0.0f;
  float low_part = 0.0f;
};

// True if float requantization equals `before_table` for every |sum| <= largest, which is proved at the thresholds of
// both monotone functions; false also for unsupported epilogues. The proof includes:
//   - x is exact in float32, v fits 32 bits, and |offset| <= 8192, so that v may be saturated to 16 bits first;
//   - low_part * x may be rounded to nearest or towards minus infinity (if the kernel changes the rounding mode).
bool prove_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, FloatRequant* requant);

// Float requantization with a kink at zero:
//   v = floor(high_part * x + (low_part * x + copysign(kink, x)))
// The inner sum is a fused multiply-add, rounded to nearest or towards minus infinity. The outer one is rounded towards
// minus infinity. x = +0 counts as positive. With kink 0, this equals FloatRequant. A kink represents one rounding half
// away from zero, or two roundings: half up by 31 bits, then half away from zero by `shift` bits. These equal half up
// of the exact product, plus 2^-(shift + 1) above zero and minus 2^-(shift + 1) below zero.
struct KinkedFloatRequant {
  float high_part = 0.0f;
  float low_part = 0.0f;
  float kink = 0.0f;
};

bool prove_kinked_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, KinkedFloatRequant* requant);

}  // namespace tpuconvert
