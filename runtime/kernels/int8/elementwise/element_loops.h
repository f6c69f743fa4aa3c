// Loops of ElementKernels that compilers vectorize automatically. Included by one file per instruction set, inside its
// namespace, after that file has defined rescale, linear, linear_sum, residual, kResidualFloat, look_up_wide, look_up
// and interleave3.

template <typename Function>
inline __attribute__((always_inline)) void for_lanes(const Lanes& lanes, Function function) {
  const std::int32_t* __restrict a = lanes.a;
  const std::int32_t* __restrict b = lanes.b;
  std::int32_t* __restrict out = lanes.out;
  const int count = (lanes.count + kLaneGroup - 1) / kLaneGroup * kLaneGroup;
  for (int i = 0; i < count; ++i) out[i] = function(a[i], b[i]);
}

template <typename Function>
inline __attribute__((always_inline)) void for_each(const Lanes& lanes, Function function) {
  const std::int32_t* __restrict a = lanes.a;
  std::int32_t* __restrict out = lanes.out;
  const int count = (lanes.count + kLaneGroup - 1) / kLaneGroup * kLaneGroup;
  for (int i = 0; i < count; ++i) out[i] = function(a[i]);
}

// Applies function(lane, parameter 0, parameter `used` - 1).
template <typename Function>
inline __attribute__((always_inline)) void with_parameters(const Lanes& lanes, int used, Function function) {
  const std::int32_t* __restrict a = lanes.a;
  std::int32_t* __restrict out = lanes.out;
  const std::int32_t* __restrict p = lanes.parameters[0];
  const std::int32_t* __restrict q = lanes.parameters[used - 1];
  const int count = (lanes.count + kLaneGroup - 1) / kLaneGroup * kLaneGroup;
  if (lanes.is_per_lane) {
    for (int i = 0; i < count; ++i) out[i] = function(a[i], p[i], q[i]);
  } else {
    const std::int32_t first = p[0], second = q[0];
    for (int i = 0; i < count; ++i) out[i] = function(a[i], first, second);
  }
}

inline float real(std::int32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}

inline std::int32_t bits(float value) {
  std::int32_t result;
  __builtin_memcpy(&result, &value, 4);
  return result;
}

inline std::int32_t limited(std::int64_t value) {
  value = value < INT32_MIN ? INT32_MIN : value;
  return static_cast<std::int32_t>(value > INT32_MAX ? INT32_MAX : value);
}

// Nearest integer of |v| < 2^31, ties away from zero. The addend is the largest float32 value below 0.5: adding 0.5
// itself would round values just below a tie up, while the sum with this value rounds up to the next integer exactly
// from the tie on.
inline std::int32_t nearest(float v) { return static_cast<std::int32_t>(v + __builtin_copysignf(0x1.fffffep-2f, v)); }

inline std::int32_t nearest_limited(float v) {
  v = v == v ? v : 0.0f;
  const bool is_above = v >= 2147483648.0f;
  v = v < -2147483648.0f ? -2147483648.0f : v;
  const std::int32_t inside = nearest(v > 2147483520.0f ? 2147483520.0f : v);
  return is_above ? INT32_MAX : inside;
}

void add(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  });
}
void subtract(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) - static_cast<std::uint32_t>(b));
  });
}
void multiply(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(b));
  });
}
void add_limited(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return limited(std::int64_t{a} + b); });
}
void subtract_limited(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return limited(std::int64_t{a} - b); });
}
void multiply_limited(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return limited(std::int64_t{a} * b); });
}
void maximum(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return a > b ? a : b; });
}
void minimum(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return a < b ? a : b; });
}
void shift(const Lanes& lanes) {
  const std::int32_t amount = lanes.low;
  const auto half = static_cast<std::uint32_t>(1) << (amount - 1);
  for_each(lanes, [=](std::int32_t a) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + half) >> amount;
  });
}
void absolute(const Lanes& lanes) {
  for_each(lanes, [](std::int32_t a) {
    return a < 0 ? static_cast<std::int32_t>(0u - static_cast<std::uint32_t>(a)) : a;
  });
}
void add_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(p));
  });
}
void add_limited_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) { return limited(std::int64_t{a} + p); });
}
void multiply_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) * static_cast<std::uint32_t>(p));
  });
}
void and_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) { return a & p; });
}
void look_up_lanes(const Lanes& lanes) {
  const std::int32_t* table = lanes.table;
  for_each(lanes, [=](std::int32_t a) { return table[a & 255]; });
}
void gather(const Lanes& lanes) {
  const std::int32_t* table = lanes.table;
  const std::int32_t last = lanes.low;
  for_each(lanes, [=](std::int32_t a) {
    a = a < 0 ? 0 : a;
    return table[a > last ? last : a];
  });
}
void to_float(const Lanes& lanes) {
  for_each(lanes, [](std::int32_t a) { return bits(static_cast<float>(a)); });
}
void from_float(const Lanes& lanes) {
  for_each(lanes, [](std::int32_t a) { return nearest_limited(real(a)); });
}
void float_add(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return bits(real(a) + real(b)); });
}
void float_subtract(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return bits(real(a) - real(b)); });
}
void float_multiply(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return bits(real(a) * real(b)); });
}
void float_multiply_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) { return bits(real(a) * real(p)); });
}
void float_add_parameter(const Lanes& lanes) {
  with_parameters(lanes, 1, [](std::int32_t a, std::int32_t p, std::int32_t) { return bits(real(a) + real(p)); });
}
void float_clamp(const Lanes& lanes) {
  with_parameters(lanes, 2, [](std::int32_t a, std::int32_t low, std::int32_t high) {
    float v = real(a);
    v = v <= real(low) ? real(low) : v;  // false for NaN
    v = v >= real(high) ? real(high) : v;
    return bits(v);
  });
}
void choose_by_sign(const Lanes& lanes) {
  for_lanes(lanes, [](std::int32_t a, std::int32_t b) { return a >= 0 ? a : b; });
}
void clamp(const Lanes& lanes) {
  const std::int32_t low = lanes.low, high = lanes.high;
  for_each(lanes, [=](std::int32_t a) {
    a = a < low ? low : a;
    return a > high ? high : a;
  });
}

template <typename T>
void load(const T* __restrict from, std::int32_t bias, std::int32_t* __restrict out, int count) {
  for (int i = 0; i < count; ++i) out[i] = wrapping_sum(from[i], bias);
}

template <typename T>
void store(const std::int32_t* __restrict lanes, std::int32_t low, std::int32_t high, std::int32_t bias,
           T* __restrict to, int count) {
  for (int i = 0; i < count; ++i) {
    std::int32_t value = lanes[i];
    value = value < low ? low : value;
    value = value > high ? high : value;
    to[i] = static_cast<T>(value + bias);
  }
}

template <bool kDivides>
void quantize_row(const float* __restrict from, float divisor, float scale, std::int32_t offset, std::int32_t low,
                  std::int32_t high, std::uint8_t* __restrict to, int count) {
  // The limits are integers that float32 represents exactly, so that clamping before rounding is enough.
  const auto least = static_cast<float>(low - offset), most = static_cast<float>(high - offset);
  for (int i = 0; i < count; ++i) {
    float v = (kDivides ? from[i] / divisor : from[i]) * scale;
    v = v == v ? v : 0.0f;
    v = v < least ? least : v;
    v = v > most ? most : v;
    to[i] = static_cast<std::uint8_t>(nearest(v) + offset);
  }
}

void quantize(const float* from, float divisor, float scale, std::int32_t offset, std::int32_t low, std::int32_t high,
              std::uint8_t* to, int count) {
  if (divisor == 1.0f)
    quantize_row<false>(from, divisor, scale, offset, low, high, to, count);
  else
    quantize_row<true>(from, divisor, scale, offset, low, high, to, count);
}

void maximum_u8(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] > b[i] ? a[i] : b[i];
}

void maximum_i16(const std::int16_t* a, const std::int16_t* b, std::int16_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] > b[i] ? a[i] : b[i];
}

void minimum_u8(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = a[i] < b[i] ? a[i] : b[i];
}

void accumulate_u8(const std::uint8_t* __restrict from, std::int32_t* __restrict sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += from[i];
}

void accumulate(const std::int32_t* __restrict from, std::int32_t* __restrict sums, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += from[i];
}

// For integers below 2^53, the rounding error of a quotient is smaller than its distance to the next integer above, so
// that truncation is exact.
void averages(const std::int32_t* __restrict sums, std::int32_t subtracted, std::int32_t count, std::int32_t bias,
              std::uint8_t* __restrict to, std::int64_t size) {
  const double divisor = 2.0 * (count < 1 ? 1 : count);
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int32_t total = sums[i] - subtracted;
    const double real = total < 0 ? -static_cast<double>(total) : static_cast<double>(total);
    const double magnitude = (2.0 * real + 0.5 * divisor) / divisor;
    const std::int32_t whole = static_cast<std::int32_t>(magnitude > 1024.0 ? 1024.0 : magnitude);
    std::int32_t value = (total < 0 ? -whole : whole) + bias;
    value = value < 0 ? 0 : value;
    to[i] = static_cast<std::uint8_t>(value > 255 ? 255 : value);
  }
}

std::int32_t sum_of_row(const std::uint8_t* from, std::int64_t count) {
  std::int32_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += from[i];
  return sum;
}

std::uint8_t largest_of_row(const std::uint8_t* from, std::int64_t count) {
  std::uint8_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = from[i] > largest ? from[i] : largest;
  return largest;
}

std::uint8_t smallest_of_row(const std::uint8_t* from, std::int64_t count) {
  std::uint8_t smallest = 255;
  for (std::int64_t i = 0; i < count; ++i) smallest = from[i] < smallest ? from[i] : smallest;
  return smallest;
}

// The sums of several rows are independent and are computed in parallel, to hide the latency of additions.
template <int kRows>
void softmax_rows(const std::uint8_t* from, int count, const float* table, float scale, std::int32_t zero, float* powers,
                  std::uint8_t* to) {
  const float* first[kRows];
  float sum[kRows];
  for (int row = 0; row < kRows; ++row) {
    first[row] = table + largest_of_row(from + row * static_cast<std::ptrdiff_t>(count), count);
    sum[row] = 0.0f;
  }
  for (int i = 0; i < count; ++i)
    for (int row = 0; row < kRows; ++row) {
      const float power = *(first[row] - from[row * static_cast<std::ptrdiff_t>(count) + i]);
      powers[row * static_cast<std::ptrdiff_t>(count) + i] = power;
      sum[row] = i == 0 ? power : sum[row] + power;
    }
  const auto least = static_cast<float>(-zero), most = static_cast<float>(255 - zero);
  for (int row = 0; row < kRows; ++row) {
    const float* __restrict own = powers + row * static_cast<std::ptrdiff_t>(count);
    std::uint8_t* __restrict target = to + row * static_cast<std::ptrdiff_t>(count);
    const float total = sum[row];
    for (int i = 0; i < count; ++i) {
      float v = own[i] / total * scale;
      v = v == v ? v : 0.0f;
      v = v < least ? least : v;
      v = v > most ? most : v;
      target[i] = static_cast<std::uint8_t>(nearest(v) + zero);
    }
  }
}

void softmax(const std::uint8_t* from, std::int64_t rows, int count, const float* table, float scale, std::int32_t zero,
             float* powers, std::uint8_t* to) {
  std::int64_t row = 0;
  for (; row + kSoftmaxRows <= rows; row += kSoftmaxRows)
    softmax_rows<kSoftmaxRows>(from + row * count, count, table, scale, zero, powers, to + row * count);
  for (; row < rows; ++row) softmax_rows<1>(from + row * count, count, table, scale, zero, powers, to + row * count);
}

constexpr ElementKernels kKernels = {
    {add, subtract, multiply, add_limited, subtract_limited, multiply_limited, maximum, minimum, shift, absolute,
     add_parameter, add_limited_parameter, multiply_parameter, and_parameter, rescale, look_up_lanes, gather,
     to_float, from_float, float_add, float_subtract, float_multiply, float_multiply_parameter, float_add_parameter, float_clamp,
     choose_by_sign, clamp},
    load<std::uint8_t>,
    load<std::uint16_t>,
    load<std::int16_t>,
    store<std::uint8_t>,
    store<std::uint16_t>,
    linear,
    linear_sum,
    residual,
    kResidualFloat,
    look_up_wide,
    look_up,
    quantize,
    interleave3,
    maximum_u8,
    minimum_u8,
    maximum_i16,
    accumulate_u8,
    accumulate,
    averages,
    sum_of_row,
    largest_of_row,
    smallest_of_row,
    softmax};
