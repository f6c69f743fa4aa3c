// Proof that float requantization gives the same bytes as its definition.
//
// Let f be the definition and F the float requantization, both before the lookup table. Both are monotone in the sum x
// on [-L, L]. For a result k, let t(k) be the smallest x with f(x) >= k. F equals f everywhere if they are equal at -L
// and L and if, for every result k that f reaches in between, F(t(k)) >= k and F(t(k) - 1) < k.
//
// F can be evaluated exactly in float64 without changing the rounding mode. Let p be the rounded inner sum, and RD the
// rounding down to float32:
//   - F(x) >= k means floor(RD(high * x + p)) >= c with c = 2 * (k - offset) - 1. c is an integer of less than 24 bits
//     and therefore a float32 value, so that RD and floor do not change the comparison: the condition is
//     high * x + p >= c.
//   - high * x has at most 48 bits, so it is exact in float64. So is low * x + kink: low is the rest of a 31-bit
//     multiplier, and the kink is a multiple of the unit of its last bit, at most 2^31 times that unit.
//   - d = high * x - c is exact in float64 unless |d| exceeds 2^53 units of the last bit of high * x. Then |d| is far
//     larger than |p|, which is below 2^25 such units, so that rounding d does not change its comparison with -p.
//
// F is monotone: if x increases by 1, the outer sum increases by `high`, and the inner sum changes by at most |low|
// plus two rounding errors of p. With |x| < 2^24, kink <= high and |low| <= 2^-24 * high, this change is below
// high * 2^-20.
//
// p may be rounded to nearest or down. The proof checks F(t(k)) >= k with the smaller value of p and F(t(k) - 1) < k
// with the larger one, so that it is valid for both.
#include <cmath>
#include <cstring>
#include <limits>

#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

namespace {

__extension__ using Wide = __int128;

// Thresholds of f. With j = k - offset, f(x) >= k if and only if multiplier * x >= j * 2^shift - below for j <= 0, or
// multiplier * x >= j * 2^shift - above for j >= 1.
struct Line {
  std::int64_t multiplier;  // 0..2^31-1
  int shift;                // 0..62
  Wide below;               // for j <= 0
  Wide above;               // for j >= 1
  double kink;              // in units of F, that is, halves of a result
};

bool line_of_two_roundings(const Epilogue& epilogue, int channel, Line* line) {
  const int right = -epilogue.shift(channel);
  if (right < 0 || right > 31) return false;
  const Wide half = Wide{1} << (30 + right);  // half a unit of the result; with right = 0, of the first rounding
  const Wide first = Wide{1} << 30;
  *line = {epilogue.multiplier(channel), 31 + right, half, half, 0.0};
  if (right > 0) {
    // The first rounding gives h = floor(x * m / 2^31 + 1/2). The result is at least j if h >= j * 2^right - 2^(right -
    // 1), plus 1 for j <= 0, where ties round down.
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
    // For j <= 0, ties round down, so that the product must be larger by one unit. The float form uses a kink of half a
    // unit.
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

// Rounds to the nearest float32. Not inlined, because GCC 12 with -fno-trapping-math removes the rounding of
// double(float(x)) when it vectorizes both conversions.
__attribute__((noinline)) float nearest_float(double value) { return static_cast<float>(value); }

// Comparison of F at one sum with one result.
class FloatFunction {
 public:
  explicit FloatFunction(const KinkedFloatRequant& requant) : high_(requant.high_part), low_(requant.low_part), kink_(requant.kink) {}

  // True if F(x) >= k, where c = 2 * (k - offset) - 1 and p is rounded down or to nearest. The comparison is exact.
  bool reaches(std::int64_t x, double c, bool is_down) const {
    const double real = static_cast<double>(x);
    const double inner = inner_sum(real);
    float p = nearest_float(inner);
    if (is_down && static_cast<double>(p) > inner) p = std::nextafter(p, -std::numeric_limits<float>::infinity());
    return high_ * real - c >= -static_cast<double>(p);
  }

  // True only if F(x) >= k and F(x - 1) < k for any rounding of p and of this function, whose errors are below
  // `margin`. From x - 1 to x, the distance from c increases by high + low, or by more where the kink changes its sign.
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

// True if, for each result j in first..last, F reaches j at its threshold and not one step below. All results are on
// the same side of zero.
bool agrees(const FloatFunction& function, const Line& line, Wide minus, std::int64_t first, std::int64_t last) {
  if (first > last) return true;
  // t(j) = ceil((j * 2^shift - minus) / multiplier). The loop advances it by the quotient and remainder of 2^shift /
  // multiplier.
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

// True if F(x) equals `result` for both roundings of p. Values beyond the limits count as the limit.
bool equals(const FloatFunction& function, std::int64_t x, std::int64_t result, std::int64_t offset, const EpilogueSpec& spec) {
  const double c = static_cast<double>(2 * (result - offset) - 1);
  return (result == spec.low || function.reaches(x, c, true)) && (result == spec.high || !function.reaches(x, c + 2, false));
}

}  // namespace

bool prove_kinked_float_requant(const Epilogue& epilogue, int channel, std::int64_t largest, KinkedFloatRequant* requant) {
  constexpr std::int64_t kLargestExact = std::int64_t{1} << 24;  // smaller sums are exact in float32
  const EpilogueSpec& spec = epilogue.spec();
  const std::int64_t offset = epilogue.offset(channel);
  Line line;
  if (spec.bytes != 1 || largest < 1 || largest >= kLargestExact || offset < -8192 || offset > 8192) return false;
  if (!line_of(epilogue, channel, &line) || line.multiplier < 0) return false;

  const double factor = std::ldexp(static_cast<double>(line.multiplier), 1 - line.shift);  // exact
  if (factor * static_cast<double>(largest) > 0x1p29) return false;
  requant->high_part = nearest_float(factor);
  requant->low_part = nearest_float(factor - static_cast<double>(requant->high_part));  // exact: at most 8 bits
  requant->kink = line.multiplier == 0 ? 0.0f : static_cast<float>(line.kink);
  if (requant->kink > requant->high_part) return false;  // F may not be monotone; only for multipliers far from 2^31
  const FloatFunction exact(*requant);

  // Every result above the lowest one has a threshold in (-largest, largest]. `first` and `last` exclude the offset.
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
