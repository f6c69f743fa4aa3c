#include "int8/epilogue/epilogue.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "int8/epilogue/epilogue_float.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kInt32Low = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kInt32High = std::numeric_limits<std::int32_t>::max();
constexpr int kSmallestShift = -64;
constexpr int kLargestShift = 31;

// --- division by 2^shift: one function per rounding, for shifts 0..64 and every 64-bit integer -----------------------

// Floor of x / 2^shift. `half`: the remainder is at least 2^(shift - 1). `rest`: the bits of the remainder below are
// not all 0.
struct Quotient {
  std::int64_t floor;
  bool half;
  bool rest;
};

Quotient divide(std::int64_t x, int shift) {
  if (shift == 0) return {x, false, false};
  const std::int64_t doubled = x >> std::min(shift - 1, 63);
  const std::uint64_t below = shift > 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << (shift - 1)) - 1;
  return {doubled >> 1, (doubled & 1) != 0, (static_cast<std::uint64_t>(x) & below) != 0};
}

// Rounds to nearest, ties towards plus infinity.
std::int64_t half_up(std::int64_t x, int shift) {
  if (shift <= 0) return x;
  const std::int64_t doubled = x >> std::min(shift - 1, 63);
  return (doubled >> 1) + (doubled & 1);
}

// Rounds to nearest, ties away from zero.
std::int64_t half_away(std::int64_t x, int shift) {
  const Quotient quotient = divide(x, shift);
  return quotient.floor + (quotient.half && (quotient.rest || quotient.floor >= 0));
}

std::int64_t round_shift(std::int64_t x, int shift, Rounding rounding) {
  const Quotient quotient = divide(x, shift);
  const std::int64_t floor = quotient.floor;
  switch (rounding) {
    case Rounding::kHalfToEven:
      return floor + (quotient.half && (quotient.rest || (floor & 1) != 0));
    case Rounding::kHalfAwayFromZero:
      return half_away(x, shift);
    case Rounding::kTowardsZero:
      return floor + ((quotient.half || quotient.rest) && floor < 0);
    case Rounding::kDown:
      return floor;
    case Rounding::kUp:
      return floor + (quotient.half || quotient.rest);
    case Rounding::kHalfUp:
      return half_up(x, shift);
    case Rounding::kHalfDown:
      return floor + (quotient.half && quotient.rest);
  }
  return floor;  // unreachable: the constructor checks the rounding
}

std::int64_t limit(std::int64_t x, std::int64_t low, std::int64_t high) { return x < low ? low : x > high ? high : x; }

// Rounds to nearest, ties away from zero, saturated to INT32; NaN gives 0.
std::int64_t nearest_i32(float value) {
  if (value != value) return 0;
  if (value >= 2147483648.0f) return kInt32High;
  if (value <= -2147483648.0f) return kInt32Low;
  // A float32 value has at most 24 bits: adding 0.5 in float64 is exact, or rounds to a value below the next integer.
  return static_cast<std::int64_t>(static_cast<double>(value) + (value < 0 ? -0.5 : 0.5));
}

// --- requantizations -------------------------------------------------------------------------------------------------

// Needs no wider type, because |sum * multiplier| <= 2^62.
std::int64_t two_roundings(std::int32_t sum, std::int32_t multiplier, std::int32_t shift) {
  const std::int64_t product = std::int64_t{sum} * multiplier;
  const std::int64_t high = limit(half_up(product, 31 - std::max(shift, 0)), kInt32Low, kInt32High);
  return half_away(high, std::max(-shift, 0));
}

std::int64_t one_rounding(std::int32_t sum, std::int32_t multiplier, std::int32_t shift, Rounding rounding) {
  const std::int64_t product = std::int64_t{sum} * multiplier;
  if (shift <= 0) return round_shift(product, -shift, rounding);
  // Clamping the product to +-2^32 does not change the stored result: the shifted value stays outside of 32 bits even
  // after an offset is added, and saturates.
  constexpr std::int64_t kLargest = (std::int64_t{1} << 32) - 1;
  return limit(product, -kLargest, kLargest) * (std::int64_t{1} << shift);
}

template <typename T>
void check_length(const std::vector<T>& values, int channels, bool is_needed, const char* name) {
  if (values.empty() ? is_needed : values.size() != 1 && values.size() != static_cast<std::size_t>(channels))
    throw std::invalid_argument(std::string("an epilogue needs one ") + name + ", or one per channel");
}

// Access to the parameters of consecutive channels, of which there is one per channel or one for all of them.
template <typename T>
struct Row {
  Row(const std::vector<T>& values, int channel)
      : data(values.empty() ? &none : values.data() + (values.size() == 1 ? 0 : channel)),
        step(values.size() > 1 ? 1 : 0) {}
  T operator[](int index) const { return data[index * step]; }

  T none{};
  const T* data;
  std::ptrdiff_t step;
};

float dequantized(std::int64_t value, const EpilogueSpec& spec) {
  return static_cast<float>(value - spec.output_zero) * spec.output_scale;
}

template <typename Value>
void write_dequantized_row(const EpilogueSpec& spec, int channel, int count, std::uint8_t* out, const Value& value_of) {
  const Row<std::int32_t> offset(spec.offset, channel);
  for (int i = 0; i < count; ++i) {
    const float real = dequantized(limit(value_of(i) + offset[i], spec.low, spec.high), spec);
    std::memcpy(out + static_cast<std::size_t>(i) * sizeof(real), &real, sizeof(real));
  }
}

template <typename Stored, typename Value>
void write_row(const EpilogueSpec& spec, int channel, int count, std::uint8_t* out, const Value& value_of) {
  const Row<std::int32_t> offset(spec.offset, channel);
  const std::uint8_t* table = spec.lut.empty() ? nullptr : spec.lut.data();
  for (int i = 0; i < count; ++i) {
    std::int64_t value = limit(value_of(i) + offset[i], spec.low, spec.high);
    if (table != nullptr) value = table[value];
    const Stored stored = static_cast<Stored>(value);
    std::memcpy(out + static_cast<std::size_t>(i) * sizeof(Stored), &stored, sizeof(Stored));
  }
}

template <typename Value>
void write_row_of(const EpilogueSpec& spec, int channel, int count, std::uint8_t* out, const Value& value_of) {
  if (spec.is_dequantized) return write_dequantized_row(spec, channel, count, out, value_of);
  switch (spec.bytes) {
    case 1:
      return write_row<std::uint8_t>(spec, channel, count, out, value_of);
    case 2:
      return write_row<std::uint16_t>(spec, channel, count, out, value_of);
    default:
      return write_row<std::uint32_t>(spec, channel, count, out, value_of);
  }
}

}  // namespace

EpilogueSpec without_ties(EpilogueSpec spec, std::int64_t largest) {
  const bool is_nearest = spec.rounding == Rounding::kHalfToEven || spec.rounding == Rounding::kHalfAwayFromZero ||
                          spec.rounding == Rounding::kHalfDown;
  if (spec.rescale != Rescale::kOneRounding || !is_nearest || spec.multiplier.empty() || spec.shift.empty()) return spec;
  const std::size_t channels = std::max(spec.multiplier.size(), spec.shift.size());
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const std::int64_t multiplier = spec.multiplier[spec.multiplier.size() == 1 ? 0 : channel];
    const std::int64_t right = -std::int64_t{spec.shift[spec.shift.size() == 1 ? 0 : channel]};
    if (multiplier == 0 || right <= 0) continue;  // exact: nothing is rounded
    // A tie is an odd multiple of 2^(right - 1). If x * multiplier is one, 2^(right - 1 - zeros) divides x.
    const std::int64_t zeros = __builtin_ctzll(static_cast<unsigned long long>(multiplier));
    if (right - 1 - zeros < 62 && largest >> std::max<std::int64_t>(right - 1 - zeros, 0) != 0) return spec;
  }
  spec.rounding = Rounding::kHalfUp;
  return spec;
}

Epilogue::Epilogue(EpilogueSpec spec, int channels, Isa isa) : spec_(std::move(spec)), channels_(channels) {
  if (channels < 1) throw std::invalid_argument("an epilogue needs at least one channel");
  const bool is_fixed_point = spec_.rescale == Rescale::kTwoRoundings || spec_.rescale == Rescale::kOneRounding;
  const bool has_scale = spec_.rescale == Rescale::kLowPrecision || spec_.rescale == Rescale::kHighSymmetric;
  check_length(spec_.multiplier, channels, is_fixed_point, "multiplier");
  check_length(spec_.shift, channels, is_fixed_point, "shift");
  check_length(spec_.offset, channels, false, "offset");
  check_length(spec_.late_bias, channels, false, "late bias");
  const int rounding = static_cast<int>(spec_.rounding);
  if (rounding < 0 || rounding > static_cast<int>(Rounding::kHalfDown))
    throw std::invalid_argument("an epilogue has an unknown rounding");
  if (is_fixed_point)
    for (const std::int32_t shift : spec_.shift)
      if (shift < kSmallestShift || shift > kLargestShift)
        throw std::invalid_argument("the shift of an epilogue is outside of -64..31");

  std::int64_t lowest = 0, highest = 255;
  if (spec_.bytes == 2) {
    lowest = std::numeric_limits<std::int16_t>::min();
    highest = std::numeric_limits<std::uint16_t>::max();
  } else if (spec_.bytes == 4) {
    lowest = kInt32Low;
    highest = std::numeric_limits<std::uint32_t>::max();
  } else if (spec_.bytes != 1) {
    throw std::invalid_argument("results of an epilogue have 1, 2 or 4 bytes");
  }
  if (spec_.low < lowest || spec_.high > highest || spec_.low > spec_.high)
    throw std::invalid_argument("the limits of an epilogue do not fit its result");
  if (spec_.is_dequantized && (spec_.bytes != 4 || spec_.low < -65536 || spec_.high > 65536 ||
                        std::abs(std::int64_t{spec_.output_zero}) > (1 << 30)))
    throw std::invalid_argument("an epilogue with float results scales integers of at most 16 bits");
  if (!spec_.lut.empty() && (spec_.bytes != 1 || spec_.lut.size() != 256))
    throw std::invalid_argument("the table of an epilogue has 256 entries of one byte");

  if (has_scale) {
    if (!(spec_.scale > 0) || !std::isfinite(spec_.scale))
      throw std::invalid_argument("the scale of an epilogue must be positive and finite");
    int exponent = 0;
    std::frexp(spec_.scale, &exponent);
    first_shift_ = spec_.scale <= 1.0f ? 1 - exponent : 0;  // ceil(log2(1 / scale)), computed without logarithms
    power_ = std::ldexp(1.0, first_shift_);
    // The product is exact in float64. A factor above 2^40 saturates every result except 0; the bound keeps products
    // within 64 bits.
    const double rest = static_cast<double>(spec_.scale) * power_ * 128.0;
    rest_in_128ths_ = rest > 0x1p40 ? std::int64_t{1} << 40 : static_cast<std::int64_t>(rest);
    // A value slightly above 1 may be truncated to 128 / 128 = 1. Multiplying by 128 and rounding by 7 bits is then the
    // identity.
  }
  if (spec_.rescale == Rescale::kLowPrecision &&
      (spec_.narrow_low < -65536 || spec_.narrow_high > 65536 || spec_.narrow_low > spec_.narrow_high))
    throw std::invalid_argument("the first stage of an epilogue is limited to at most 16 bits");
  is_plain_ = spec_.rescale == Rescale::kOneRounding && spec_.rounding == Rounding::kHalfUp &&
              std::all_of(spec_.shift.begin(), spec_.shift.end(), [](int shift) { return shift <= 0 && shift >= -62; });
  is_identity_ = spec_.rescale == Rescale::kNone && spec_.bytes == 4 && !spec_.is_dequantized && spec_.low <= kInt32Low &&
                 spec_.high >= kInt32High &&
                 std::all_of(spec_.offset.begin(), spec_.offset.end(), [](int offset) { return offset == 0; });
  prepare_rows(isa);
}

void Epilogue::prepare_rows(Isa isa) {
#if defined(__x86_64__) || defined(__aarch64__)
  const bool is_twice = spec_.rescale == Rescale::kTwoRoundings;
  const bool is_once = spec_.rescale == Rescale::kOneRounding && spec_.rounding == Rounding::kHalfUp;
  if (isa == Isa::kScalar || (!is_twice && !is_once) || spec_.high > kInt32High) return;
  auto rows = std::make_shared<Rows>();
  for (std::vector<std::int32_t>* values : {&rows->reach, &rows->lift, &rows->multiplier, &rows->first_shift,
                                            &rows->least, &rows->most, &rows->offset})
    values->resize(static_cast<std::size_t>(channels_) + kRowLanes);
  bool is_lifted = false;
  for (int channel = 0; channel < channels_; ++channel) {
    std::int64_t factor = multiplier(channel);
    // Bits of the right shift after the first 31 bits. A single rounding uses one of them for the rounding.
    int rest = is_twice ? -shift(channel) : -shift(channel) - 32;
    for (; rest < 0 && !is_twice && factor > 0 && 2 * factor <= kInt32High; ++rest) factor *= 2;
    const int lift = std::max(0, -rest);
    const int first = is_twice ? rest + lift - 1 : rest + lift;
    const std::int64_t own_offset = offset(channel);
    const std::int64_t least = spec_.low - own_offset, most = spec_.high - own_offset;
    if (factor < 0 || factor > kInt32High || first > 30) return;
    if (least < kInt32Low || least > kInt32High || most < kInt32Low || most > kInt32High) return;
    // For |x| <= reach, the left shift fits 32 bits. Clamping x to the reach is allowed if the result of the reach is
    // already beyond the limits.
    const std::int64_t reach = lift > 30 ? 0 : (std::int64_t{1} << (31 - lift)) - 1;
    if (lift > 0) {
      const std::int64_t farthest = std::max(std::abs(least), std::abs(most)) + 1;
      const int bits = is_twice ? 31 - lift : 32 - lift;
      if (bits < 1 || (reach * factor) >> bits < farthest) return;
      is_lifted = true;
    }
    const auto at = static_cast<std::size_t>(channel);
    rows->reach[at] = static_cast<std::int32_t>(reach);
    rows->lift[at] = lift;
    rows->multiplier[at] = static_cast<std::int32_t>(factor);
    rows->first_shift[at] = first;
    rows->least[at] = static_cast<std::int32_t>(least);
    rows->most[at] = static_cast<std::int32_t>(most);
    rows->offset[at] = static_cast<std::int32_t>(own_offset);
  }
  const bool has_one_factor = is_once && has_avx512(isa) && find_factors(&rows->factor, &rows->addend);
  rows->parameters = {rows->reach.data(),
                      rows->lift.data(),
                      rows->multiplier.data(),
                      rows->first_shift.data(),
                      rows->least.data(),
                      rows->most.data(),
                      rows->offset.data(),
                      spec_.output_zero,
                      spec_.output_scale,
                      rows->factor.data(),
                      rows->addend.data(),
                      static_cast<float>(spec_.low),
                      static_cast<float>(spec_.high)};
  const RowResult result = spec_.is_dequantized       ? RowResult::kReal
                           : spec_.bytes == 1 ? RowResult::kByte
                           : spec_.bytes == 2 ? RowResult::kWord
                                              : RowResult::kInteger;
  const bool is_uniform = spec_.multiplier.size() == 1 && spec_.shift.size() == 1 && spec_.offset.size() <= 1;
  const RowVariant variant{is_twice, is_uniform, is_lifted, result};
#if defined(__x86_64__)
  rows->function = has_avx512(isa) ? row_function_avx512(variant) : row_function_avx2(variant);
  rows->rows = has_avx512(isa) ? block_of_rows_avx512(variant) : block_of_rows_avx2(variant);
  if (has_one_factor) rows->block = block_function_avx512(result);
#else
  static_cast<void>(has_one_factor);
  rows->function = row_function_neon(variant);
  rows->rows = block_of_rows_neon(variant);
#endif
  rows_ = std::move(rows);
#else
  static_cast<void>(isa);
#endif
}

// True if clamp(half_up(sum * multiplier * 2^shift) + offset) equals clamp(floor(factor * float(sum) + addend)), where
// the multiply-add rounds down once before the floor. This is the case if factor and addend are exact in float32 and
// the clamp applies to every |sum| >= 2^24, since only these sums are inexact in float32. Below 2^24, rounding down
// does not change a floor.
bool Epilogue::find_factors(std::vector<float>* factor, std::vector<float>* addend) const {
  constexpr std::int64_t kFarthest = 1 << 17;
  constexpr double kExact = 1 << 24;
  if (spec_.low < -kFarthest || spec_.high > kFarthest) return false;
  for (int channel = 0; channel < channels_; ++channel) {
    const double exact = std::ldexp(static_cast<double>(multiplier(channel)), shift(channel));
    const double rest = static_cast<double>(offset(channel)) + 0.5;
    const bool reaches_limits =
        kExact * exact + rest >= static_cast<double>(spec_.high) && rest - kExact * exact < static_cast<double>(spec_.low);
    if (static_cast<double>(static_cast<float>(exact)) != exact || std::abs(rest) > kFarthest || !reaches_limits)
      return false;
    factor->push_back(static_cast<float>(exact));
    addend->push_back(static_cast<float>(rest));
  }
  factor->resize(factor->size() + kRowLanes);
  addend->resize(addend->size() + kRowLanes);
  return true;
}

std::int64_t Epilogue::rescale(std::int32_t sum, int channel) const {
  switch (spec_.rescale) {
    case Rescale::kNone:
      return sum;
    case Rescale::kTwoRoundings:
      return two_roundings(sum, multiplier(channel), shift(channel));
    case Rescale::kOneRounding:
      return one_rounding(sum, multiplier(channel), shift(channel), spec_.rounding);
    case Rescale::kLowPrecision: {
      const std::int64_t first = limit(half_up(sum, first_shift_), spec_.narrow_low, spec_.narrow_high);
      return half_up(first * rest_in_128ths_, 7);  // |product| <= 2^56
    }
    case Rescale::kHighSymmetric: {
      const std::int64_t first = limit(half_up(sum, first_shift_), -32768, 32767);
      const float product = static_cast<float>(first) * spec_.scale;
      // Multiplication by a power of two is exact, and in float64 it cannot overflow.
      const float real = static_cast<float>(static_cast<double>(product) * power_);
      return nearest_i32(spec_.late_bias.empty() ? real : real + late_bias(channel));
    }
    case Rescale::kFloat: {
      const float real = static_cast<float>(sum) * spec_.scale;
      return nearest_i32(spec_.late_bias.empty() ? real : real + late_bias(channel));
    }
  }
  return sum;  // unreachable
}

std::int64_t Epilogue::before_table(std::int32_t sum, int channel) const {
  return limit(rescale(sum, channel) + offset(channel), spec_.low, spec_.high);
}

std::int64_t Epilogue::apply(std::int32_t sum, int channel) const {
  const std::int64_t value = before_table(sum, channel);
  if (spec_.is_dequantized) {
    const float real = dequantized(value, spec_);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &real, sizeof(bits));
    return bits;
  }
  return spec_.lut.empty() ? value : spec_.lut[static_cast<std::size_t>(value)];
}

void Epilogue::apply_rows(const RowBlock& block, int channel, int count) const {
  if (rows_ && spec_.lut.empty()) {
    (rows_->block != nullptr ? rows_->block : rows_->rows)(rows_->parameters, channel, count, block);
    return;
  }
  for (int row = 0; row < block.rows; ++row)
    apply_row(block.sums + row * block.stride, channel, count, block.outputs[row] + block.offset);
}

void Epilogue::apply_row(const std::int32_t* sums, int channel, int count, std::uint8_t* out) const {
  if (is_identity_) {
    std::memcpy(out, sums, static_cast<std::size_t>(count) * 4);
    return;
  }
  if (rows_ && rows_->block != nullptr && spec_.lut.empty()) {
    rows_->block(rows_->parameters, channel, count, {sums, 0, 1, &out, 0});
    return;
  }
  if (rows_) {
    rows_->function(rows_->parameters, channel, sums, count, out);
    if (!spec_.lut.empty())
      for (int i = 0; i < count; ++i) out[i] = spec_.lut[out[i]];
    return;
  }
  const Row<std::int32_t> multiplier(spec_.multiplier, channel), shift(spec_.shift, channel);
  switch (spec_.rescale) {
    case Rescale::kNone:
      return write_row_of(spec_, channel, count, out, [&](int i) { return std::int64_t{sums[i]}; });
    case Rescale::kTwoRoundings:
      return write_row_of(spec_, channel, count, out,
                          [&](int i) { return two_roundings(sums[i], multiplier[i], shift[i]); });
    case Rescale::kOneRounding:
      if (is_plain_)
        return write_row_of(spec_, channel, count, out, [&](int i) {
          // |product| <= 2^62, and shifts have at most 62 bits: the sum with half a unit is below 2^63.
          const int right = -shift[i];
          return (std::int64_t{sums[i]} * multiplier[i] + ((std::int64_t{1} << right) >> 1)) >> right;
        });
      return write_row_of(spec_, channel, count, out,
                          [&](int i) { return one_rounding(sums[i], multiplier[i], shift[i], spec_.rounding); });
    case Rescale::kHighSymmetric:
    case Rescale::kFloat:
      if (has_float_rows(spec_)) {
        constexpr int kBlock = 64;
        std::int32_t rescaled[kBlock];
        for (int first = 0; first < count; first += kBlock) {
          const int block = std::min(kBlock, count - first);
          rescale_float_rows(*this, sums + first, channel + first, block, rescaled);
          write_row_of(spec_, channel + first, block, out + static_cast<std::size_t>(first) * spec_.bytes,
                       [&](int i) { return std::int64_t{rescaled[i]}; });
        }
        return;
      }
      [[fallthrough]];
    case Rescale::kLowPrecision:
      return write_row_of(spec_, channel, count, out, [&](int i) { return rescale(sums[i], channel + i); });
  }
}

}  // namespace tpuconvert
