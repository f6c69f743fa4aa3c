// The softmax of rows_to_bytes.h in vectors of binary32. The including file defines `Lanes`, the operations on its
// registers, and includes this in an unnamed namespace.

// 2^x, with a relative error of at most 4.2 * 2^-24; about 0 far below 0.
inline Lanes::Real power_of_two(Lanes::Real x) {
  Lanes::Real fraction;  // x - floor(x), rounded: up to 1
  const Lanes::Real whole = Lanes::split(x, &fraction);
  // A polynomial that differs from 2^fraction by 1.6 * 2^-24 at the most, fitted to the least relative error.
  Lanes::Real q = Lanes::all(0.00187757588f);
  q = Lanes::fused(q, fraction, Lanes::all(0.00898934156f));
  q = Lanes::fused(q, fraction, Lanes::all(0.0558263175f));
  q = Lanes::fused(q, fraction, Lanes::all(0.240153611f));
  q = Lanes::fused(q, fraction, Lanes::all(0.693153083f));
  q = Lanes::fused(q, fraction, Lanes::all(0.99999994f));
  return Lanes::times_power_of_two(q, whole);
}

inline bool is_plain(const ToBytes& to) { return to.offset == 0 && to.low == 0 && to.high == 255; }

constexpr float kBase = 1.44269504f;  // 1 / ln 2; its relative error is below 2^-26

// IsPlain: results are bytes from 0 to 255 without an offset.
template <bool IsPlain>
bool softmax_row(const SoftmaxBytesTask& task, const float* x, std::uint8_t* y, float* powers) {
  const std::int64_t count = task.count;
  Lanes::Real most = Lanes::load_first(x, count);
  std::int64_t i = Lanes::kCount;
  for (; i + Lanes::kCount <= count; i += Lanes::kCount) most = Lanes::larger(Lanes::load(x + i), most);
  if (i < count) most = Lanes::larger(Lanes::load_first(x + i, count - i), most);
  // exp(x - largest) times a power of two near 1 that all elements share: the rounding of `shift`.
  const float largest = Lanes::largest(most);
  if (!(largest > -0x1p22f && largest < 0x1p22f)) return false;
  const Lanes::Real base = Lanes::all(kBase), shift = Lanes::all(largest * -kBase);

  Lanes::Real sum = Lanes::all(0.0f);
  for (i = 0; i + Lanes::kCount <= count; i += Lanes::kCount) {
    const Lanes::Real power = power_of_two(Lanes::fused(Lanes::load(x + i), base, shift));
    Lanes::store(powers + i, power);
    sum = Lanes::add(sum, power);
  }
  if (i < count) {
    const Lanes::Real power = power_of_two(Lanes::fused(Lanes::load_first(x + i, count - i), base, shift));
    Lanes::store(powers + i, power);
    sum = Lanes::add(sum, power);
  }

  const Lanes::Real factor = Lanes::all(task.to.scale / Lanes::sum(sum));
  const Lanes::Real doubt = Lanes::all(-task.doubt), half = Lanes::all(0.5f);
  Lanes::Doubt doubts = Lanes::none();
  for (i = 0; i < count; i += Lanes::kCount) {
    const Lanes::Real scaled = Lanes::multiply(Lanes::load(powers + i), factor);
    // NaN counts as doubtful.
    doubts = Lanes::either(doubts, Lanes::is_not_less(Lanes::distance(scaled), Lanes::fused(scaled, doubt, half)));
    if (IsPlain) {
      Lanes::store_saturated(y + i, scaled, count - i);
    } else {
      Lanes::store_bytes(y + i, scaled, task.to, count - i);
    }
  }
  return !Lanes::any(doubts);
}
