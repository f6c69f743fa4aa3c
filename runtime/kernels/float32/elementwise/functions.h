// Elementary functions of float64 vectors, for results that are rounded to float32. Include after the vector header of
// an instruction set.
//
// They use only fused multiply-adds, additions, multiplications and divisions. These are rounded identically on every
// instruction set, and so are the results. Relative errors are below 2^-30, so that the error after rounding to float32
// is at most 0.52 ULP. Operands are converted from float32.
#pragma once

#include "float32/unroll.h"

namespace tpuconvert {
namespace {

FLOAT_INLINE Double constant(double x) { return Double::broadcast(x); }

// c[0] + c[1] x + c[2] x^2 + ...
template <int kCount>
FLOAT_INLINE Double polynomial(Double x, const double (&c)[kCount]) {
  Double sum = constant(c[kCount - 1]);
  unroll<kCount - 1>(UNROLLED(i) { sum = fused(sum, x, constant(c[kCount - 2 - i.value])); });
  return sum;
}

// exp(x) = 2^n * (1 + q), with n in the low bits of `shifted`. x is clamped to +-200, where the exponentials are 0 and
// infinity in float32. NaN propagates.
struct SplitExponential {
  Double shifted, q;
};

FLOAT_INLINE SplitExponential split_exponential(Double x) {
  // exp(r) - 1 = r + r^2 / 2 + ... + r^9 / 9! for |r| < 0.35, with a remainder below 7e-12.
  static constexpr double kTaylor[] = {1.0,         1.0 / 2,    1.0 / 6,     1.0 / 24,    1.0 / 120,
                                       1.0 / 720,   1.0 / 5040, 1.0 / 40320, 1.0 / 362880};
  const Double shifter = constant(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const Double limited = larger(constant(-200.0), smaller(constant(200.0), x));
  const Double shifted = fused(limited, constant(1.4426950408889634), shifter);
  const Double r = fused(shifted - shifter, constant(-0.6931471805599453), limited);
  return {shifted, r * polynomial(r, kTaylor)};
}

FLOAT_INLINE Double exponential(Double x) {
  const SplitExponential e = split_exponential(x);
  return times_power_of_two(constant(1.0) + e.q, e.shifted);
}

// exp(x) - 1, without cancellation near x = 0.
FLOAT_INLINE Double exponential_minus_one(Double x) {
  const SplitExponential e = split_exponential(x);
  const Double power = times_power_of_two(constant(1.0), e.shifted);
  return fused(e.q, power, power - constant(1.0));
}

// ln(x) of a positive normal value, without cancellation near x = 1.
FLOAT_INLINE Double logarithm_of_positive(Double x) {
  // 2 artanh(s) / s - 2 in powers of s^2 < 0.0295.
  static constexpr double kSeries[] = {2.0 / 3, 2.0 / 5, 2.0 / 7, 2.0 / 9, 2.0 / 11, 2.0 / 13};
  Double exponent;
  const Double f = split_exponent(x, &exponent) - constant(1.0);
  const Double s = f / (constant(2.0) + f);
  const Double square = s * s;
  const Double tail = s * (square * polynomial(square, kSeries));
  return fused(exponent, constant(0.6931471805599453), fused(constant(2.0), s, tail));
}

FLOAT_INLINE Double logarithm(Double x) {
  const Double infinity = constant(__builtin_inf());
  Double y = logarithm_of_positive(x);
  y = select(x < infinity, y, x);                                   // x is infinity or NaN
  y = select(x < constant(0x1p-1000), infinity * constant(-1.0), y);  // x is 0
  return select(x < constant(0.0), constant(__builtin_nan("")), y);
}

// ln(1 + u) for 0 <= u <= 1.
FLOAT_INLINE Double logarithm_of_one_plus(Double u) {
  // 2 artanh(s) / s - 2 in powers of s^2 <= 1/9.
  static constexpr double kSeries[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                                       2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  const Double s = u / (constant(2.0) + u);
  const Double square = s * s;
  return fused(constant(2.0), s, s * (square * polynomial(square, kSeries)));
}

FLOAT_INLINE Double sigmoid(Double x) { return constant(1.0) / (constant(1.0) + exponential(constant(0.0) - x)); }

FLOAT_INLINE Double hyperbolic_tangent(Double x) {
  const Double e = exponential_minus_one(x + x);
  return e / (e + constant(2.0));
}

FLOAT_INLINE Double softplus(Double x) {
  return larger(constant(0.0), x) + logarithm_of_one_plus(exponential(constant(0.0) - magnitude(x)));
}

// erfc(x) = 1 - erf(x). The result is 2 for x < -11 and less than 2e-54 for x > 11.
FLOAT_INLINE Double error_complement(Double x) {
  // erfc(z) * exp(z^2) * (1 + 2z) as a polynomial in (z - 3) / (z + 3), for 0 <= z <= 11. The fit minimizes the
  // relative error, which is at most 5e-11.
  static constexpr double kFit[] = {1.2530080582778476,    -0.1356211072067761,   -0.047562295736744156,
                                    0.12964521386975775,   -0.11927360187007868,  0.06830724441865318,
                                    -0.023771568797232346, 0.0025337785247968336, 0.001896344578837875,
                                    -0.0007888953275404863, -0.00012926270739138304, 0.00012344586498998743,
                                    3.2006350331728117e-05};
  const Double z = smaller(constant(11.0), magnitude(x));
  const Double wide = fused(constant(2.0), z, constant(1.0)), far = z + constant(3.0);
  const Double inverse = constant(1.0) / (wide * far);
  const Double u = (z - constant(3.0)) * wide * inverse;
  const Double tail = polynomial(u, kFit) * (far * inverse) * exponential(constant(0.0) - z * z);
  return select(x < constant(0.0), constant(2.0) - tail, tail);
}

// Returns 0 for x = -infinity and y otherwise. 0 is the limit of x * f(x) with f(x) = o(1 / x).
FLOAT_INLINE Double zero_below(Double x, Double y) {
  return select(x < constant(-0x1p200), constant(0.0), y);
}

FLOAT_INLINE Double gelu(Double x) {
  // For x < -15.5, the argument of error_complement exceeds 11, where it stops decreasing. The exact result is below
  // the smallest float32 value there.
  const Double y = x * constant(0.5) * error_complement(x * constant(-0.7071067811865476));
  return select(x < constant(-15.5), constant(0.0), y);
}

FLOAT_INLINE Double gelu_by_tangent(Double x) {
  const Double inner = fused(x * x * x, constant(0.044715), x);
  return zero_below(x, x / (constant(1.0) + exponential(inner * constant(-1.5957691216057308))));
}

FLOAT_INLINE Double silu(Double x, double alpha) {
  const Double y = x / (constant(1.0) + exponential(x * constant(-alpha)));
  return alpha > 0 ? zero_below(x, y) : y;
}

FLOAT_INLINE Double mish(Double x) {
  const Double e = exponential(x);
  const Double product = e * (e + constant(2.0));
  return zero_below(x, x * (product / (product + constant(2.0))));
}

FLOAT_INLINE Double hard_sigmoid(Double x, double alpha, double beta) {
  const Double line = x * constant(alpha) + constant(beta);
  return smaller(constant(1.0), larger(constant(0.0), line));
}

FLOAT_INLINE Double hard_swish(Double x) {
  const Double gate = x / constant(6.0) + constant(0.5);
  return zero_below(x, x * smaller(constant(1.0), larger(constant(0.0), gate)));
}

}  // namespace
}  // namespace tpuconvert
