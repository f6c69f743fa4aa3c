// Loops without branches, so that compilers vectorize them for every instruction set.
#include "int8/epilogue/epilogue_float.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tpuconvert {

namespace {

// Rounds half up by `shift` bits and clamps to 16 bits.
void first_stage(const std::int32_t* sums, int count, int shift, std::int32_t* out) {
  const bool is_shifted = shift > 0;
  // shifting by 31 bits leaves only the sign, which rounds to 0
  const int bits = is_shifted ? std::min(shift - 1, 31) : 0;
  for (int i = 0; i < count; ++i) {
    const std::int32_t doubled = sums[i] >> bits;
    const std::int32_t value = is_shifted ? (doubled >> 1) + (doubled & 1) : doubled;
    out[i] = std::min(std::max(value, -32768), 32767);
  }
}

// Rounds to nearest, ties away from zero, saturated to INT32; NaN gives 0.
std::int32_t nearest_i32(float real) {
  constexpr float kBeyond = 2147483648.0f, kHighest = 2147483520.0f;  // 2^31 and the largest float32 value below it
  const float number = real == real ? real : 0.0f;
  const float above = number < -kBeyond ? -kBeyond : number;
  const float limited = above > kHighest ? kHighest : above;
  const std::int32_t whole = static_cast<std::int32_t>(limited);
  const float rest = limited - static_cast<float>(whole);  // exact
  const std::int32_t rounded = whole + (rest >= 0.5f ? 1 : 0) - (rest <= -0.5f ? 1 : 0);
  return number >= kBeyond ? std::numeric_limits<std::int32_t>::max() : rounded;
}

void add_and_round(const std::int32_t* integers, int count, float factor, const float* late, std::ptrdiff_t step,
                   std::int32_t* out) {
  if (late == nullptr) {
    for (int i = 0; i < count; ++i) out[i] = nearest_i32(static_cast<float>(integers[i]) * factor);
  } else if (step == 0) {
    const float bias = *late;
    for (int i = 0; i < count; ++i) out[i] = nearest_i32(static_cast<float>(integers[i]) * factor + bias);
  } else {
    for (int i = 0; i < count; ++i) out[i] = nearest_i32(static_cast<float>(integers[i]) * factor + late[i]);
  }
}

}  // namespace

bool has_float_rows(const EpilogueSpec& spec) {
  // With a subnormal scale, the product would be rounded before the multiplication by the power of two.
  return spec.rescale == Rescale::kFloat || (spec.rescale == Rescale::kHighSymmetric && std::isnormal(spec.scale));
}

void rescale_float_rows(const Epilogue& epilogue, const std::int32_t* sums, int channel, int count, std::int32_t* rescaled) {
  const EpilogueSpec& spec = epilogue.spec();
  const std::ptrdiff_t step = spec.late_bias.size() > 1 ? 1 : 0;
  const float* late = spec.late_bias.empty() ? nullptr : spec.late_bias.data() + step * channel;
  if (spec.rescale == Rescale::kFloat) {
    add_and_round(sums, count, spec.scale, late, step, rescaled);
    return;
  }
  first_stage(sums, count, epilogue.first_shift(), rescaled);
  const auto factor = static_cast<float>(std::ldexp(static_cast<double>(spec.scale), epilogue.first_shift()));
  add_and_round(rescaled, count, factor, late, step, rescaled);
}

}  // namespace tpuconvert
