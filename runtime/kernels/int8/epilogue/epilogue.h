// Epilogue of integer linear operators: from 32-bit accumulators to stored integers, by the requantizations of the
// operator set.
//
// Every requantization is a monotone function of the accumulator. `apply` is the scalar definition, equal to the NumPy
// references; vector kernels use exact implementations, or a cheaper one that was proved equal for the given channels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {

// Names as in the operator set: requant_int32, and the calculation modes of conv and matrix_mul.
enum class Rescale {
  kNone,           // the sum itself
  kTwoRoundings,   // requant_int32 TFLITE, TFLITE_LSHIFT: half up by 31 bits, saturate, half away by -shift
  kOneRounding,    // requant_int32 MULTIPLIER_SHIFT: one rounding of sum * multiplier * 2^shift in `rounding`
  kLowPrecision,   // mode 0: rounding shift, limit to the result type, 7-bit multiplier
  kHighSymmetric,  // mode 1: rounding shift, limit to 16 bits, float32 factor, late bias
  kFloat,          // requant_fp32_to_int: nearest(float(sum) * scale), ties away from zero
};

// As schema/fixed_point.py numbers them.
enum class Rounding { kHalfToEven = 0, kHalfAwayFromZero, kTowardsZero, kDown, kUp, kHalfUp, kHalfDown };

// stored = min(max(rescaled + offset, low), high), then lut[stored] where there is a table.
// `offset`, `low`, `high` and the table are in terms of stored values: an INT8 result has 128 added already.
// Vectors have one element, or one per output channel; empty ones are not used by the form.
struct EpilogueSpec {
  Rescale rescale = Rescale::kNone;
  Rounding rounding = Rounding::kHalfUp;
  std::vector<std::int32_t> multiplier;
  std::vector<std::int32_t> shift;   // positive: to the left; as the attribute of the operator
  std::vector<std::int32_t> offset;
  float scale = 1.0f;                // kLowPrecision, kHighSymmetric, kFloat
  std::vector<float> late_bias;      // kHighSymmetric: already float(bias) * scale, rounded to float32; kFloat: a real
                                     // offset. Added in float32 before the last rounding
  int narrow_low = 0;                // kLowPrecision: the range of the result type, limits the first stage
  int narrow_high = 0;
  std::int64_t low = 0;              // limits of the stored result
  std::int64_t high = 255;
  int bytes = 1;                     // of a stored element: 1 (unsigned), 2 or 4 (two's complement, or unsigned 16/32)
  std::vector<std::uint8_t> lut;     // 256 entries or empty; only for one byte
  bool is_dequantized = false;              // the result is float32(stored - output_zero) * output_scale, in 4 bytes
  std::int32_t output_zero = 0;
  float output_scale = 1.0f;
};

// The same with kHalfUp as its rounding, where no number of magnitude at most `largest` is a tie in any channel: all
// roundings to the nearest agree then.
EpilogueSpec without_ties(EpilogueSpec spec, std::int64_t largest);

// The scalar definition, prepared for fast evaluation.
class Epilogue {
 public:
  Epilogue() = default;
  // `isa` decides how apply_row computes, not what.
  // Throws std::invalid_argument for parameters outside the operator set's limits or vectors of the wrong length.
  Epilogue(EpilogueSpec spec, int channels, Isa isa = Isa::kScalar);

  const EpilogueSpec& spec() const { return spec_; }
  int channels() const { return channels_; }
  int bytes() const { return spec_.bytes; }

  // The stored result of one accumulator; the bits of a float result.
  std::int64_t apply(std::int32_t sum, int channel) const;

  // apply() for `count` adjacent channels from `channel` on, written as elements of bytes() bytes.
  void apply_row(const std::int32_t* sums, int channel, int count, std::uint8_t* out) const;

  // The same for several rows.
  void apply_rows(const RowBlock& block, int channel, int count) const;

  // The result before the lookup table or dequantization.
  std::int64_t before_table(std::int32_t sum, int channel) const;

  // kLowPrecision, kHighSymmetric: bits of the first rounding shift, and what is left of the scale: 2^first_shift() * scale
  // in 128ths, cut to an integer (128 means 1, and then there is no second rounding).
  int first_shift() const { return first_shift_; }
  std::int64_t rest_in_128ths() const { return rest_in_128ths_; }

  // Parameter of a channel, whether there is one or one per channel.
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

  // Parameters of a vector form; copies of an epilogue share them.
  struct Rows {
    std::vector<std::int32_t> reach, lift, multiplier, first_shift, least, most, offset;
    std::vector<float> factor, addend;  // of the form with one factor
    RowParameters parameters;
    RowFunction function;
    BlockFunction block = nullptr;  // null without the form with one factor
  };

  std::shared_ptr<const Rows> rows_;
  EpilogueSpec spec_;
  int channels_ = 1;
  int first_shift_ = 0;
  std::int64_t rest_in_128ths_ = 128;
  double power_ = 1.0;           // 2^first_shift
  bool is_plain_ = false;        // kOneRounding, half up, only shifts to the right that cannot leave 64 bits
  bool is_identity_ = false;     // kNone on 32 bits without offsets and limits
};

// Coefficients of float requantization of one channel:
//   v = floor(high_part * x + low_part * x), rounded towards minus infinity in float32 at each of the two steps
//   (low_part * x to nearest), and stored = limit((v + 1 + 2 * offset) >> 1).
// x is the sum; high_part + low_part is twice the factor.
struct FloatRequant {
  float high_part = 0.0f;
  float low_part = 0.0f;
};

// True if float requantization equals `before_table` for every |sum| <= largest, proved at the thresholds of both monotone
// functions. False also for an epilogue that it does not support. The proof covers:
//   - x is exact in float32, v fits 32 bits, and |offset| <= 8192, so that v may saturate to 16 bits first;
//   - low_part * x may be rounded to nearest or towards minus infinity (as under a changed rounding mode).
bool prove_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, FloatRequant* requant);

// Float requantization with a kink at zero:
//   v = floor(high_part * x + (low_part * x + copysign(kink, x))), the inner sum rounded once (a fused multiply-add, to
//   nearest or towards minus infinity), the outer one once towards minus infinity; +0 counts as positive.
// It covers what FloatRequant covers (with kink 0), and two roundings: those to the nearest 2^-31 first and then half away
// from zero are half up of the exact product plus 2^-(shift+1) above zero and minus as much below it; and one rounding
// half away from zero.
struct KinkedFloatRequant {
  float high_part = 0.0f;
  float low_part = 0.0f;
  float kink = 0.0f;
};

bool prove_kinked_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, KinkedFloatRequant* requant);

}  // namespace tpuconvert
