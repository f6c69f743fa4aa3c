// Implementation of quantize_rows.h with vectors. The including file defines `Lanes`, the operations on its registers,
// and includes this file in an unnamed namespace.

#define ROWS_INLINED __attribute__((always_inline))

// 2^x with a relative error of at most 4.2 * 2^-24; approximately 0 for very small x.
inline Lanes::Real power_of_two(Lanes::Real x) {
  Lanes::Real fraction;  // x - floor(x), rounded; may be 1
  const Lanes::Real whole = Lanes::split(x, &fraction);
  // A polynomial that approximates 2^fraction with the smallest possible relative error, at most 1.6 * 2^-24.
  Lanes::Real q = Lanes::all(0.00187757588f);
  q = Lanes::fused(q, fraction, Lanes::all(0.00898934156f));
  q = Lanes::fused(q, fraction, Lanes::all(0.0558263175f));
  q = Lanes::fused(q, fraction, Lanes::all(0.240153611f));
  q = Lanes::fused(q, fraction, Lanes::all(0.693153083f));
  q = Lanes::fused(q, fraction, Lanes::all(0.99999994f));
  return Lanes::times_power_of_two(q, whole);
}

// 2^x in float64 with a relative error below 2^-34; 2^-1000 for smaller x.
inline Lanes::Wide wide_power_of_two(Lanes::Wide x) {
  const Lanes::Wide shifter = Lanes::all_wide(6755399441055744.0);  // 1.5 * 2^52: adding it rounds to an integer
  const Lanes::Wide limited = Lanes::larger(Lanes::all_wide(-1000.0), x);  // NaN propagates
  const Lanes::Wide shifted = Lanes::add(limited, shifter);
  const Lanes::Wide r = Lanes::subtract(limited, Lanes::subtract(shifted, shifter));
  Lanes::Wide q = Lanes::all_wide(1.5195577511555006e-05);
  q = Lanes::fused(q, r, Lanes::all_wide(0.00015469236479087335));
  q = Lanes::fused(q, r, Lanes::all_wide(0.0013333950083526552));
  q = Lanes::fused(q, r, Lanes::all_wide(0.00961802745797812));
  q = Lanes::fused(q, r, Lanes::all_wide(0.0555041031948787));
  q = Lanes::fused(q, r, Lanes::all_wide(0.24022651196252703));
  q = Lanes::fused(q, r, Lanes::all_wide(0.693147180738832));
  q = Lanes::fused(q, r, Lanes::all_wide(0.9999999999619436));
  return Lanes::times_power_of_two(q, shifted);
}

inline bool is_plain(const ByteQuantization& to) { return to.offset == 0 && to.low == 0 && to.high == 255; }

constexpr float kBase = 1.44269504f;  // 1 / ln(2) with a relative error below 2^-26
constexpr double kWideBase = 1.4426950408889634;

// Loads n lanes and fills the remaining lanes with `rest`.
inline Lanes::Real load_up_to(const float* from, std::int64_t n, float rest = -__builtin_inff()) {
  return n >= Lanes::kCount ? Lanes::load(from) : Lanes::load_first(from, n, Lanes::all(rest));
}

inline void store_bytes(std::uint8_t* to, Lanes::Real x, const ByteQuantization& form, bool is_plain, std::int64_t n) {
  if (is_plain) {
    Lanes::store_saturated(to, x, n);
  } else {
    Lanes::store_bytes(to, x, form, n);
  }
}

inline float largest_of(const float* x, std::int64_t count) {
  Lanes::Real most = load_up_to(x, count);
  for (std::int64_t i = Lanes::kCount; i < count; i += Lanes::kCount)
    most = Lanes::larger(load_up_to(x + i, count - i), most);
  return Lanes::largest(most);
}

// Computes a row in float32. Returns false if an element is ambiguous.
inline bool narrow_row(const SoftmaxQuantizeTask& task, const float* x, float largest, std::uint8_t* y, float* powers) {
  // Because `shift` is rounded, the powers are exp(x - largest) times a common factor near 1, which the quotient
  // cancels.
  if (!(largest > -0x1p22f && largest < 0x1p22f)) return false;
  const std::int64_t count = task.count;
  const Lanes::Real base = Lanes::all(kBase), shift = Lanes::all(largest * -kBase);
  Lanes::Real sum = Lanes::all(0.0f);
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real power = power_of_two(Lanes::fused(load_up_to(x + i, count - i), base, shift));
    Lanes::store(powers + i, power);
    sum = Lanes::add(sum, power);
  }
  const Lanes::Real factor = Lanes::all(task.to.scale / Lanes::sum(sum));
  const Lanes::Real error_bound = Lanes::all(-task.error_bound), half = Lanes::all(0.5f);
  const bool plain = is_plain(task.to);
  Lanes::Mask ambiguous = Lanes::none();
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real scaled = Lanes::multiply(Lanes::load(powers + i), factor);
    // NaN is ambiguous, and so is a tie for any error bound.
    ambiguous = Lanes::either(ambiguous, Lanes::is_not_less(Lanes::distance(scaled), Lanes::fused(scaled, error_bound, half)));
    store_bytes(y + i, scaled, task.to, plain, count - i);
  }
  return !Lanes::any(ambiguous);
}

// Recomputes elements whose product is close to a tie. Returns false if a probability is also so close to the middle of
// two float32 values that the float64 error may decide.
inline bool settle(const SoftmaxQuantizeTask& task, const double* powers, double inverse, std::uint8_t* y) {
  constexpr double kGuard = 0x1p-32;
  for (std::int64_t i = 0; i < task.count; ++i) {
    const double exact = powers[i] * inverse;
    const float scaled = static_cast<float>(exact) * task.to.scale;
    const float rest = scaled - __builtin_floorf(scaled);
    if (rest < 0.5f - scaled * 0x1p-22f || rest > 0.5f + scaled * 0x1p-22f) continue;
    if (!(static_cast<float>(exact * (1 + kGuard)) == static_cast<float>(exact * (1 - kGuard)))) return false;
    const int stored = static_cast<int>(scaled) + (rest >= 0.5f) + task.to.offset;
    y[i] = static_cast<std::uint8_t>(stored < task.to.low ? task.to.low : stored > task.to.high ? task.to.high : stored);
  }
  return true;
}

// Computes a row in float64 up to the probability, which is rounded to float32 as in the definition.
inline bool wide_row(const SoftmaxQuantizeTask& task, const float* x, float largest, std::uint8_t* y, double* powers) {
  // The rounding of `shift` is a common factor of all powers. Below this bound it is near 1, above it may overflow.
  if (!(largest > -0x1p40f && largest < 0x1p40f)) return false;
  const std::int64_t count = task.count;
  const Lanes::Wide base = Lanes::all_wide(kWideBase);
  const Lanes::Wide shift = Lanes::all_wide(static_cast<double>(largest) * -kWideBase);
  Lanes::Wide low_sum = Lanes::all_wide(0.0), high_sum = low_sum;
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real part = load_up_to(x + i, count - i);
    const Lanes::Wide low = wide_power_of_two(Lanes::fused(Lanes::low_half(part), base, shift));
    const Lanes::Wide high = wide_power_of_two(Lanes::fused(Lanes::high_half(part), base, shift));
    Lanes::store(powers + i, low);
    Lanes::store(powers + i + Lanes::kCount / 2, high);
    low_sum = Lanes::add(low_sum, low);
    high_sum = Lanes::add(high_sum, high);
  }
  const double inverse = 1.0 / Lanes::sum(Lanes::add(low_sum, high_sum));
  const Lanes::Wide factor = Lanes::all_wide(inverse);
  const Lanes::Real scale = Lanes::all(task.to.scale), error_bound = Lanes::all(-0x1p-22f), half = Lanes::all(0.5f);
  const bool plain = is_plain(task.to);
  Lanes::Mask ambiguous = Lanes::none();
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Wide low = Lanes::multiply(Lanes::load(powers + i), factor);
    const Lanes::Wide high = Lanes::multiply(Lanes::load(powers + i + Lanes::kCount / 2), factor);
    const Lanes::Real scaled = Lanes::multiply(Lanes::narrow(low, high), scale);
    ambiguous = Lanes::either(ambiguous, Lanes::is_not_less(Lanes::distance(scaled), Lanes::fused(scaled, error_bound, half)));
    store_bytes(y + i, scaled, task.to, plain, count - i);
  }
  // settle() cannot handle a NaN sum, which makes every element ambiguous.
  return !Lanes::any(ambiguous) || (inverse == inverse && settle(task, powers, inverse, y));
}

inline bool softmax_row(const SoftmaxQuantizeTask& task, const float* x, std::uint8_t* y, double* powers) {
  const float largest = largest_of(x, task.count);
  if (!task.is_often_ambiguous && narrow_row(task, x, largest, y, reinterpret_cast<float*>(powers))) return true;
  return wide_row(task, x, largest, y, powers);
}

// --- normalization ---------------------------------------------------------------------------------------------------

// Sums next(partial sum, index of the first element) over the vectors of a row. Two partial sums hide the latency of
// additions. The last vector may be incomplete.
template <typename Next>
inline float sum_of_vectors(std::int64_t count, const Next& next) {
  Lanes::Real first = Lanes::all(0.0f), second = first;
  std::int64_t i = 0;
  for (; i + Lanes::kCount < count; i += 2 * Lanes::kCount) {
    first = next(first, i);
    second = next(second, i + Lanes::kCount);
  }
  if (i < count) first = next(first, i);
  return Lanes::sum(Lanes::add(first, second));
}

inline bool norm_row(const NormQuantizeTask& task, const float* x, std::uint8_t* y) {
  const std::int64_t count = task.count;
  const float length = static_cast<float>(count);
  const float mean = sum_of_vectors(count, [&](Lanes::Real sum, std::int64_t i) ROWS_INLINED {
                       return Lanes::add(sum, load_up_to(x + i, count - i, 0.0f));
                     }) / length;

  const Lanes::Real center = Lanes::all(mean);
  const float squares = sum_of_vectors(count, [&](Lanes::Real sum, std::int64_t i) ROWS_INLINED {
    const Lanes::Real centered = Lanes::subtract(load_up_to(x + i, count - i, mean), center);
    return Lanes::fused(centered, centered, sum);
  });
  const double variance = static_cast<double>(squares / length) + task.epsilon;
  const double inverse = 1.0 / __builtin_sqrt(variance);
  const double distance = static_cast<double>(mean) * inverse;  // of the mean from 0, in deviations
  if (!(distance > -64.0 && distance < 64.0 && variance > 0x1p-60 && variance < 0x1p60)) return false;

  const float error_bound = task.error_bound + task.mean_error * (1.0f + static_cast<float>(distance < 0 ? -distance : distance));
  const Lanes::Real factor = Lanes::all(static_cast<float>(inverse)), limit = Lanes::all(0.5f - error_bound);
  const Lanes::Real slope = Lanes::all(-task.relative_error);
  Lanes::Mask ambiguous = Lanes::none();
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real normal = Lanes::multiply(Lanes::subtract(load_up_to(x + i, count - i, mean), center), factor);
    const Lanes::Real scaled = Lanes::fused(normal, Lanes::load(task.factor + i), Lanes::load(task.bias + i));
    const Lanes::Real allowed = Lanes::fused(Lanes::magnitude(scaled), slope, limit);
    ambiguous = Lanes::either(ambiguous, Lanes::is_not_less(Lanes::distance(scaled), allowed));
    Lanes::store_bytes(y + i, scaled, task.to, count - i);
  }
  return !Lanes::any(ambiguous);
}

inline void to_bytes(const ByteQuantization& to, const float* x, std::int64_t count, std::uint8_t* y) {
  const Lanes::Real scale = Lanes::all(to.scale), most = Lanes::all(0x1p20f), least = Lanes::all(-0x1p20f);
  for (std::int64_t i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real scaled = Lanes::zero_for_nan(Lanes::multiply(load_up_to(x + i, count - i, 0.0f), scale));
    const Lanes::Real limited = Lanes::larger(Lanes::smaller(scaled, most), least);
    Lanes::store_bytes(y + i, Lanes::away_from_zero(limited), to, count - i);
  }
}

inline void add_row(const float* a, const float* b, std::int64_t count, float* sum) {
  std::int64_t i = 0;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount)
    Lanes::store(sum + i, Lanes::add(Lanes::load(a + i), Lanes::load(b + i)));
  for (; i < count; ++i) sum[i] = a[i] + b[i];
}
