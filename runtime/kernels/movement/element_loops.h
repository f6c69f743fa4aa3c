// Bodies of ElementKernels that compilers vectorize by themselves. Included by one file per instruction set, inside its
// namespace, after that file has defined rescale, linear, linear_sum and look_up.

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

// function(lane, parameter 0, parameter 1)
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

// Nearest integer of |v| < 2^31, halves away from zero: the fraction is exact, and nothing is added before it is known.
inline std::int32_t nearest(float v) {
  const auto whole = static_cast<std::int32_t>(v);
  const float fraction = v - static_cast<float>(whole);
  return whole + static_cast<std::int32_t>(fraction >= 0.5f) - static_cast<std::int32_t>(fraction <= -0.5f);
}

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
void look_up_lanes(const Lanes& lanes) {
  const std::int32_t* table = lanes.table;
  for_each(lanes, [=](std::int32_t a) { return table[a & 255]; });
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
    v = (v > real(low)) | (v != v) ? v : real(low);
    v = (v < real(high)) | (v != v) ? v : real(high);
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
  for (int i = 0; i < count; ++i) out[i] = from[i] + bias;
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
  // Beyond 2^26 every result is a limit already, since offsets stay below 2^24.
  constexpr float kFar = 67108864.0f;
  for (int i = 0; i < count; ++i) {
    float v = (kDivides ? from[i] / divisor : from[i]) * scale;
    v = v == v ? v : 0.0f;
    v = v < -kFar ? -kFar : v;
    v = v > kFar ? kFar : v;
    std::int32_t value = nearest(v) + offset;
    value = value < low ? low : value;
    value = value > high ? high : value;
    to[i] = static_cast<std::uint8_t>(value);
  }
}

void quantize(const float* from, float divisor, float scale, std::int32_t offset, std::int32_t low, std::int32_t high,
              std::uint8_t* to, int count) {
  if (divisor == 1.0f)
    quantize_row<false>(from, divisor, scale, offset, low, high, to, count);
  else
    quantize_row<true>(from, divisor, scale, offset, low, high, to, count);
}

typedef std::uint8_t Bytes16 __attribute__((vector_size(16)));

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    Bytes16 a, b, c;
    __builtin_memcpy(&a, planes[0] + i, 16);
    __builtin_memcpy(&b, planes[1] + i, 16);
    __builtin_memcpy(&c, planes[2] + i, 16);
    const Bytes16 ab0 = __builtin_shufflevector(a, b, 0, 16, -1, 1, 17, -1, 2, 18, -1, 3, 19, -1, 4, 20, -1, 5);
    const Bytes16 ab1 = __builtin_shufflevector(a, b, 21, -1, 6, 22, -1, 7, 23, -1, 8, 24, -1, 9, 25, -1, 10, 26);
    const Bytes16 ab2 = __builtin_shufflevector(a, b, -1, 11, 27, -1, 12, 28, -1, 13, 29, -1, 14, 30, -1, 15, 31, -1);
    const Bytes16 rgb[3] = {
        __builtin_shufflevector(ab0, c, 0, 1, 16, 3, 4, 17, 6, 7, 18, 9, 10, 19, 12, 13, 20, 15),
        __builtin_shufflevector(ab1, c, 0, 21, 2, 3, 22, 5, 6, 23, 8, 9, 24, 11, 12, 25, 14, 15),
        __builtin_shufflevector(ab2, c, 26, 1, 2, 27, 4, 5, 28, 7, 8, 29, 10, 11, 30, 13, 14, 31)};
    __builtin_memcpy(to + 3 * i, rgb, 48);
  }
  for (; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

void maximum_u8(const std::uint8_t* a, const std::uint8_t* b, std::uint8_t* to, std::int64_t count) {
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

void softmax_row(const std::uint8_t* __restrict from, int count, const float* table, float scale, std::int32_t zero,
                 float* __restrict powers, std::uint8_t* __restrict to) {
  const int largest = largest_of_row(from, count);
  for (int i = 0; i < count; ++i) powers[i] = table[largest - from[i]];
  float sum = powers[0];
  for (int i = 1; i < count; ++i) sum += powers[i];
  for (int i = 0; i < count; ++i) {
    const std::int64_t value = std::int64_t{nearest_limited(powers[i] / sum * scale)} + zero;
    to[i] = static_cast<std::uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

constexpr ElementKernels kKernels = {
    {add, subtract, multiply, add_limited, subtract_limited, multiply_limited, maximum, minimum, shift, absolute,
     add_parameter, add_limited_parameter, multiply_parameter, rescale, look_up_lanes, to_float, from_float, float_add, float_subtract, float_multiply,
     float_multiply_parameter, float_add_parameter, float_clamp, choose_by_sign, clamp},
    load<std::uint8_t>, load<std::uint16_t>, load<std::int16_t>, store<std::uint8_t>, store<std::uint16_t>,
    linear, linear_sum, look_up, quantize, interleave3, maximum_u8, minimum_u8,
    accumulate_u8, accumulate, sum_of_row, largest_of_row, smallest_of_row, softmax_row};
