// Proof that float requantization gives the same bytes as its definition.
//
// Let f be the definition and F the float requantization, both before the table and both monotone in the sum x on [-L, L]. They are
// equal everywhere if they are equal at both ends and, for every result k that f reaches in between, at the smallest x
// with f(x) >= k, called t(k), and just below it: f(x) >= k and F(x) >= k then hold for the same x, for every k.
//
// Why F can be evaluated exactly in float64, without changing the rounding mode:
//   - F(x) >= k means floor(RD(high * x + p)) >= c with c = 2 * (k - offset) - 1. As c is an integer of less than 24
//     bits, it is a float32 number itself, and both RD and floor keep "at least c": the condition is high * x + p >= c.
//   - high * x has at most 48 bits, so it is exact in float64. So is low * x + kink: low consists of what is left of a
//     31-bit multiplier, and the kink is a multiple of the weight of its last bit, at most 2^31 times as much.
//   - d = high * x - c in float64 is exact, unless |d| exceeds 2^53 times the last bit of high * x; then d is far beyond
//     p, which stays below 2^25 such bits, and its rounding cannot change how it compares with -p.
// Why F is monotone: one step of x adds `high` to the outer sum and at most |low| plus two rounding errors of p to the
// inner one; with |x| < 2^24, kink <= high and |low| <= 2^-24 * high these are below 2^-20 * high.
//
// p may be rounded to nearest or downwards. F(x) >= k is therefore asked of the smaller one at t(k), and F(x) < k of
// the larger one just below, so that the proof holds for both.
#include <cmath>
#include <cstring>
#include <limits>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

namespace {

__extension__ using Wide = __int128;

// f(x) >= k where k <= 0 + offset: multiplier * x >= j * 2^shift - below, and `above` instead of `below` where k is positive.
struct Line {
  std::int64_t multiplier;  // 0..2^31-1
  int shift;                // 0..62
  Wide below;               // for results j <= 0
  Wide above;               // for results j >= 1
  double kink;              // in units of F, which are half results
};

bool line_of_two_roundings(const Epilogue& epilogue, int channel, Line* line) {
  const int right = -epilogue.shift(channel);
  if (right < 0 || right > 31) return false;
  const Wide half = Wide{1} << (30 + right);  // 1/2 of a result, or all of the first rounding where there is no second
  const Wide first = Wide{1} << 30;
  *line = {epilogue.multiplier(channel), 31 + right, half, half, 0.0};
  if (right > 0) {
    // First h = floor(x * m / 2^31 + 1/2); then h >= j * 2^right - 2^(right-1), plus 1 where ties go down.
    line->above = half + first;
    line->below = half - first;
    line->kink = std::ldexp(1.0, -right);
  }
  return true;
}

bool line_of_one_rounding(const Epilogue& epilogue, int channel, Line* line) {
  const int right = -epilogue.shift(channel);
  if (right < 0 || right > 62) return false;
  const Wide half = (Wide{1} << right) >> 1;
  *line = {epilogue.multiplier(channel), right, half, half, 0.0};
  if (epilogue.spec().rounding == Rounding::kHalfUp) return true;
  if (epilogue.spec().rounding != Rounding::kHalfAwayFromZero) return false;
  if (right > 0) {
    // Ties of negative sums go down: one unit of the product more is needed. The float form takes half a unit.
    line->below = half - 1;
    line->kink = std::ldexp(1.0, -right);
  }
  return true;
}

bool line_of(const Epilogue& epilogue, int channel, Line* line) {
  const EpilogueSpec& spec = epilogue.spec();
  if (spec.rescale == Rescale::kTwoRoundings) return line_of_two_roundings(epilogue, channel, line);
  if (spec.rescale == Rescale::kOneRounding) return line_of_one_rounding(epilogue, channel, line);
  if (spec.rescale == Rescale::kLowPrecision && epilogue.rest_in_128ths() == 128 && epilogue.first_shift() <= 62) {
    const int shift = epilogue.first_shift();
    const Wide half = (Wide{1} << shift) >> 1;
    *line = {1, shift, half, half, 0.0};
    return true;
  }
  return false;
}

// To the nearest float32. Not inlined: GCC 12 with -fno-trapping-math takes the rounding out of
// double(float(x)) where it vectorizes both conversions.
__attribute__((noinline)) float nearest_float(double value) { return static_cast<float>(value); }

// F at one sum, compared with one result.
class FloatFunction {
 public:
  explicit FloatFunction(const KinkedFloatRequant& requant) : high_(requant.high_part), low_(requant.low_part), kink_(requant.kink) {}

  // Whether F(x) >= k, for c = 2 * (k - offset) - 1 and p rounded downwards or to nearest. Exact.
  bool reaches(std::int64_t x, double c, bool is_down) const {
    const double real = static_cast<double>(x);
    const double inner = inner_sum(real);
    float p = nearest_float(inner);
    if (is_down && static_cast<double>(p) > inner) p = std::nextafter(p, -std::numeric_limits<float>::infinity());
    return high_ * real - c >= -static_cast<double>(p);
  }

  // True only where F(x) >= k and F(x - 1) < k are clear whatever the roundings of p and of this function do: they amount
  // to less than `margin`. One step of x changes the distance from c by high + low, or by more where the kink turns over.
  bool is_clear(std::int64_t x, double c) const {
    const double real = static_cast<double>(x);
    const double inner = inner_sum(real);
    const double distance = (high_ * real - c) + inner;
    const double margin = (std::fabs(inner) + high_) * 0x1p-21;
    return distance > margin && distance - (high_ + low_) < -margin;
  }

 private:
  double inner_sum(double real) const { return low_ * real + std::copysign(kink_, real); }

  double high_, low_, kink_;
};

// Results first..last, all on the same side of zero: whether F agrees at each threshold and just below.
bool agrees(const FloatFunction& function, const Line& line, Wide minus, std::int64_t first, std::int64_t last) {
  if (first > last) return true;
  // t(j) = ceil((j * 2^shift - minus) / multiplier), stepped with quotient and remainder of 2^shift / multiplier.
  const std::int64_t m = line.multiplier;
  const std::int64_t unit = std::int64_t{1} << line.shift;
  const std::int64_t step = unit / m, step_rest = unit % m;
  const Wide numerator = Wide{first} * unit - minus;
  Wide quotient = numerator / m;
  if (quotient * m < numerator) ++quotient;
  std::int64_t threshold = static_cast<std::int64_t>(quotient);
  std::int64_t surplus = static_cast<std::int64_t>(quotient * m - numerator);  // 0..m-1
  for (std::int64_t j = first; j <= last; ++j) {
    const double c = static_cast<double>(2 * j - 1);
    if (!function.is_clear(threshold, c) &&
        !(function.reaches(threshold, c, true) && !function.reaches(threshold - 1, c, false)))
      return false;
    threshold += step;
    surplus -= step_rest;
    if (surplus < 0) {
      surplus += m;
      ++threshold;
    }
  }
  return true;
}

// Whether F(x) is `result`, with everything beyond the limits counted as the limit; for both roundings of p.
bool equals(const FloatFunction& function, std::int64_t x, std::int64_t result, std::int64_t offset, const EpilogueSpec& spec) {
  const double c = static_cast<double>(2 * (result - offset) - 1);
  return (result == spec.low || function.reaches(x, c, true)) && (result == spec.high || !function.reaches(x, c + 2, false));
}

}  // namespace

bool prove_kinked_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, KinkedFloatRequant* requant) {
  constexpr std::int64_t kLargestExact = std::int64_t{1} << 24;  // sums up to here are exact in float32
  const EpilogueSpec& spec = epilogue.spec();
  const std::int64_t offset = epilogue.offset(channel);
  Line line;
  if (spec.bytes != 1 || largest < 1 || largest >= kLargestExact || offset < -8192 || offset > 8192) return false;
  if (!line_of(epilogue, channel, &line) || line.multiplier < 0) return false;

  const double factor = std::ldexp(static_cast<double>(line.multiplier), 1 - line.shift);  // exact
  if (factor * static_cast<double>(largest) > 0x1p29) return false;
  requant->high_part = nearest_float(factor);
  requant->low_part = nearest_float(factor - static_cast<double>(requant->high_part));  // at most 8 bits: exact
  requant->kink = line.multiplier == 0 ? 0.0f : static_cast<float>(line.kink);
  if (requant->kink > requant->high_part) return false;  // multipliers far from 2^31; F might not be monotone
  const FloatFunction exact(*requant);

  // Results without offset: those above the lowest one that is reached, each with a threshold in (-largest, largest].
  const std::int64_t lowest = epilogue.before_table(static_cast<std::int32_t>(-largest), channel);
  const std::int64_t highest = epilogue.before_table(static_cast<std::int32_t>(largest), channel);
  if (!equals(exact, -largest, lowest, offset, spec) || !equals(exact, largest, highest, offset, spec)) return false;
  if (lowest == highest) return true;
  const std::int64_t first = lowest + 1 - offset, last = highest - offset;
  return agrees(exact, line, line.below, first, last < 0 ? last : 0) &&
         agrees(exact, line, line.above, first > 1 ? first : 1, last);
}

bool prove_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, FloatRequant* requant) {
  KinkedFloatRequant kinked;
  if (!prove_kinked_float_requant(epilogue, channel, largest, &kinked) || kinked.kink != 0.0f) return false;
  requant->high_part = kinked.high_part;
  requant->low_part = kinked.low_part;
  return true;
}

}  // namespace tpuconvert
