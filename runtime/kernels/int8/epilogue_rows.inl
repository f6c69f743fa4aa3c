// The rows of epilogue_rows.h. The including file defines `Lanes`, the operations on its registers, and includes this in an
// unnamed namespace.

inline Lanes::Integer high_parts(Lanes::Integer x, const std::int32_t* multiplier, bool is_half_up) {
  // Odd lanes are the upper halves of 64 bits; what the shifts leave of the lower halves is blended away.
  const Lanes::Integer m = Lanes::load(multiplier);
  Lanes::Integer even = Lanes::multiply(x, m);
  Lanes::Integer odd = Lanes::multiply(Lanes::upper(x), Lanes::upper(m));
  if (is_half_up) {
    even = Lanes::add_wide(even, std::int64_t{1} << 30);
    odd = Lanes::add_wide(odd, std::int64_t{1} << 30);
  }
  return Lanes::joined(even, odd);
}

template <bool RoundsTwice>
inline Lanes::Integer rescaled(Lanes::Integer x, const RowParameters& p, int at) {
  const Lanes::Integer high = high_parts(x, p.multiplier + at, RoundsTwice);
  const Lanes::Integer shift = Lanes::load(p.first_shift + at);
  Lanes::Integer value = high;
  // Half away from zero is half up of what is one less below zero.
  if constexpr (RoundsTwice) value = Lanes::add(value, Lanes::shifted_right<31>(value));
  value = Lanes::shifted_right<1>(Lanes::add(Lanes::shifted_right(value, shift), Lanes::all(1)));
  if constexpr (RoundsTwice) value = Lanes::where_negative(shift, high, value);
  value = Lanes::limited(value, Lanes::load(p.least + at), Lanes::load(p.most + at));
  return Lanes::add(value, Lanes::load(p.offset + at));
}

template <RowResult Result>
inline void store(Lanes::Integer value, const RowParameters& p, std::uint8_t* out) {
  if constexpr (Result == RowResult::kByte) {
    Lanes::store_bytes(out, value);
  } else if constexpr (Result == RowResult::kWord) {
    Lanes::store_words(out, value);
  } else if constexpr (Result == RowResult::kInteger) {
    Lanes::store(out, value);
  } else {
    Lanes::store_product(out, Lanes::subtract(value, Lanes::all(p.zero)), p.scale);
  }
}

template <bool RoundsTwice, RowResult Result>
void row(const RowParameters& p, int first, const std::int32_t* sums, int count, std::uint8_t* out) {
  constexpr int kBytes = Result == RowResult::kByte ? 1 : Result == RowResult::kWord ? 2 : 4;
  int at = 0;
  for (; at + Lanes::kCount <= count; at += Lanes::kCount, out += Lanes::kCount * kBytes)
    store<Result>(rescaled<RoundsTwice>(Lanes::load(sums + at), p, first + at), p, out);
  if (at == count) return;
  std::int32_t rest[Lanes::kCount] = {};
  std::uint8_t results[Lanes::kCount * kBytes];
  __builtin_memcpy(rest, sums + at, static_cast<std::size_t>(count - at) * sizeof(*rest));
  store<Result>(rescaled<RoundsTwice>(Lanes::load(rest), p, first + at), p, results);
  __builtin_memcpy(out, results, static_cast<std::size_t>((count - at) * kBytes));
}

template <bool RoundsTwice>
RowFunction function_for(RowResult result) {
  switch (result) {
    case RowResult::kByte: return row<RoundsTwice, RowResult::kByte>;
    case RowResult::kWord: return row<RoundsTwice, RowResult::kWord>;
    case RowResult::kInteger: return row<RoundsTwice, RowResult::kInteger>;
    case RowResult::kReal: return row<RoundsTwice, RowResult::kReal>;
  }
  return nullptr;
}
