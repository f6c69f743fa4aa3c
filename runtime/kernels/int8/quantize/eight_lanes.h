// Operations of quantize_rows_tile.h for vectors of eight lanes. Include after the definitions of `Real`
// and `Wide`.
#pragma once

#include <cstdint>

namespace tpuconvert {
namespace {

FLOAT_INLINE float largest_of(Real x) {
  float lanes[8];
  x.store(lanes);
  float most = lanes[0];
  for (const float lane : lanes) most = lane > most ? lane : most;
  return most;
}
FLOAT_INLINE float sum_of(Real x) {
  float lanes[8];
  x.store(lanes);
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}
FLOAT_INLINE double sum_of(Wide x) {
  double lanes[4];
  x.store(lanes);
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}
// Splits x into floor(x), as an operand of times_power_of_two, and the fraction x - floor(x). NaN propagates to the
// fraction.
FLOAT_INLINE Real split(Real x, Real* fraction) {
  const Real limited = larger(Real::broadcast(-126.0f), x), whole = round_down(limited);
  *fraction = limited - whole;
  return whole;
}

}  // namespace
}  // namespace tpuconvert
