// Implementation of epilogue_rows.h. The including file defines `Lanes`, the operations on its registers, and includes
// this file in an unnamed namespace.

// Parameters of adjacent channels in registers.
struct Factors {
  Lanes::Integer multiplier, odd_multiplier, shift, least, most, offset, reach, lift;

  template <bool IsLifted>
  static inline Factors of(const RowParameters& p, int at) {
    Factors f;
    f.multiplier = Lanes::load(p.multiplier + at);
    f.odd_multiplier = Lanes::upper(f.multiplier);
    f.shift = Lanes::load(p.first_shift + at);
    f.least = Lanes::load(p.least + at);
    f.most = Lanes::load(p.most + at);
    f.offset = Lanes::load(p.offset + at);
    f.reach = IsLifted ? Lanes::load(p.reach + at) : f.offset;
    f.lift = IsLifted ? Lanes::load(p.lift + at) : f.offset;
    return f;
  }
};

template <bool RoundsTwice, bool IsLifted>
inline Lanes::Integer rescaled(Lanes::Integer x, const Factors& f) {
  if constexpr (IsLifted)
    x = Lanes::shifted_left(Lanes::limited(x, Lanes::subtract(Lanes::all(-1), f.reach), f.reach), f.lift);
  // Odd lanes are shifted to the lower half of a 64-bit lane. `joined` drops the other half of every product.
  Lanes::Integer even = Lanes::multiply(x, f.multiplier);
  Lanes::Integer odd = Lanes::multiply(Lanes::upper(x), f.odd_multiplier);
  if constexpr (RoundsTwice) {
    even = Lanes::add_wide(even, std::int64_t{1} << 30);
    odd = Lanes::add_wide(odd, std::int64_t{1} << 30);
  }
  const Lanes::Integer high = Lanes::joined(even, odd);
  Lanes::Integer value = high;
  // Half away from zero equals half up of the value, minus 1 for negative values.
  if constexpr (RoundsTwice) value = Lanes::add(value, Lanes::shifted_right<31>(value));
  value = Lanes::shifted_right<1>(Lanes::add(Lanes::shifted_right(value, f.shift), Lanes::all(1)));
  if constexpr (RoundsTwice) value = Lanes::where_negative(f.shift, high, value);
  return Lanes::add(Lanes::limited(value, f.least, f.most), f.offset);
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

template <bool RoundsTwice, RowResult Result, bool IsUniform, bool IsLifted>
void row(const RowParameters& p, int first, const std::int32_t* sums, int count, std::uint8_t* out) {
  constexpr int kBytes = Result == RowResult::kByte ? 1 : Result == RowResult::kWord ? 2 : 4;
  Factors factors = Factors::of<IsLifted>(p, first);
  int at = 0;
  for (; at + Lanes::kCount <= count; at += Lanes::kCount, out += Lanes::kCount * kBytes) {
    if constexpr (!IsUniform) factors = Factors::of<IsLifted>(p, first + at);
    store<Result>(rescaled<RoundsTwice, IsLifted>(Lanes::load(sums + at), factors), p, out);
  }
  if (at == count) return;
  if constexpr (!IsUniform) factors = Factors::of<IsLifted>(p, first + at);
  const Lanes::Integer rest = rescaled<RoundsTwice, IsLifted>(Lanes::load_first(sums + at, count - at), factors);
  alignas(64) std::uint8_t results[Lanes::kCount * kBytes];
  store<Result>(rest, p, results);
  Lanes::copy(out, results, (count - at) * kBytes);
}

// Like `row` for several rows: the parameters of each vector of channels are loaded once.
template <bool RoundsTwice, RowResult Result, bool IsLifted>
void block_of_rows(const RowParameters& given, int first, int count, const RowBlock& block) {
  constexpr int kBytes = Result == RowResult::kByte ? 1 : Result == RowResult::kWord ? 2 : 4;
  const RowParameters p = given;  // a local copy, so that stores do not force reloads
  const RowBlock b = block;
  for (int at = 0; at < count; at += Lanes::kCount) {
    const Factors factors = Factors::of<IsLifted>(p, first + at);
    const std::size_t offset = b.offset + static_cast<std::size_t>(at) * kBytes;
    const int rest = count - at;
    for (int row = 0; row < b.rows; ++row) {
      const std::int32_t* sums = b.sums + row * b.stride + at;
      std::uint8_t* out = b.outputs[row] + offset;
      if (rest >= Lanes::kCount) {
        store<Result>(rescaled<RoundsTwice, IsLifted>(Lanes::load(sums), factors), p, out);
        continue;
      }
      const Lanes::Integer value = rescaled<RoundsTwice, IsLifted>(Lanes::load_first(sums, rest), factors);
      if constexpr (Result == RowResult::kWord) {
        Lanes::store_first_words(out, value, rest);
      } else {
        alignas(64) std::uint8_t results[Lanes::kCount * kBytes];
        store<Result>(value, p, results);
        Lanes::copy(out, results, rest * kBytes);
      }
    }
  }
}

template <bool RoundsTwice, bool IsLifted>
BlockFunction block_for(RowResult result) {
  switch (result) {
    case RowResult::kByte: return block_of_rows<RoundsTwice, RowResult::kByte, IsLifted>;
    case RowResult::kWord: return block_of_rows<RoundsTwice, RowResult::kWord, IsLifted>;
    case RowResult::kInteger: return block_of_rows<RoundsTwice, RowResult::kInteger, IsLifted>;
    case RowResult::kReal: return block_of_rows<RoundsTwice, RowResult::kReal, IsLifted>;
  }
  return nullptr;
}

BlockFunction block_for(const RowVariant& variant) {
  if (variant.rounds_twice)
    return variant.is_lifted ? block_for<true, true>(variant.result) : block_for<true, false>(variant.result);
  return variant.is_lifted ? block_for<false, true>(variant.result) : block_for<false, false>(variant.result);
}

template <bool RoundsTwice, bool IsUniform, bool IsLifted>
RowFunction function_for(RowResult result) {
  switch (result) {
    case RowResult::kByte: return row<RoundsTwice, RowResult::kByte, IsUniform, IsLifted>;
    case RowResult::kWord: return row<RoundsTwice, RowResult::kWord, IsUniform, IsLifted>;
    case RowResult::kInteger: return row<RoundsTwice, RowResult::kInteger, IsUniform, IsLifted>;
    case RowResult::kReal: return row<RoundsTwice, RowResult::kReal, IsUniform, IsLifted>;
  }
  return nullptr;
}

template <bool RoundsTwice>
RowFunction function_for(const RowVariant& variant) {
  if (variant.is_lifted)
    return variant.is_uniform ? function_for<RoundsTwice, true, true>(variant.result)
                           : function_for<RoundsTwice, false, true>(variant.result);
  return variant.is_uniform ? function_for<RoundsTwice, true, false>(variant.result)
                         : function_for<RoundsTwice, false, false>(variant.result);
}
