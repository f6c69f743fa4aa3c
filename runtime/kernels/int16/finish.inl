// The epilogue of the 16-bit convolution. The including file defines `Lanes`, the operations on its registers. `part` is
// the index of a register within a panel.

constexpr int kParts = kPanel / Lanes::kCount;

// Loops with a compile-time index. Otherwise, GCC 12 keeps arrays of registers in memory.
template <int Value>
struct Index {
  constexpr operator int() const { return Value; }
};

template <int Count, int From = 0, typename Body>
__attribute__((always_inline)) inline void unrolled(Body&& body) {
  if constexpr (From < Count) {
    body(Index<From>{});
    unrolled<Count, From + 1>(body);
  }
}

// Both requantizations without the last limits. `OwnLanes` is a parameter, so that only lanes with factors need
// `multiplied`.
template <Second Again, typename OwnLanes = Lanes>
inline Lanes::Integer rescaled(Lanes::Integer sum, const Panel& panel, const Finish& f, int part) {
  Lanes::Integer value = Lanes::requantized(sum, panel.rescale, part);
  if constexpr (Again == Second::kExact || Again == Second::kFactor) value = Lanes::limited(value, f.low, f.high);
  if constexpr (Again == Second::kExact) {
    value = Lanes::requantized(value, panel.second, part);
  } else if constexpr (Again == Second::kFactor || Again == Second::kFactorAlone) {
    value = OwnLanes::multiplied(value, panel, part);
  }
  return value;
}

template <Store Kind, Second Again, typename OwnLanes = Lanes>
inline void finish_lanes(Lanes::Integer sum, const Panel& panel, const Finish& f, int part, std::uint8_t* out) {
  Lanes::Integer value = rescaled<Again, OwnLanes>(sum, panel, f, part);
  if constexpr (Again == Second::kNone) {
    value = Lanes::limited(value, f.low, f.high);
  } else {
    value = Lanes::limited(value, f.second_low, f.second_high);
  }
  if constexpr (Kind == Store::kByte) {
    Lanes::store_bytes(out + part * Lanes::kCount, value);
  } else if constexpr (Kind == Store::kWord) {
    Lanes::store_words(out + part * Lanes::kCount * 2, value);
  } else {
    Lanes::store_reals(out + part * Lanes::kCount * 4, value, f.zero, f.scale);
  }
}

constexpr std::size_t size_of(Store kind) { return kind == Store::kByte ? 1 : kind == Store::kWord ? 2 : 4; }

template <Store Kind, Second Again>
struct Ending {
  static constexpr Store kStore = Kind;
  static constexpr Second kSecond = Again;
};

template <Store Kind, typename Function>
void with_second(const Finish& f, Function&& function) {
  switch (f.second) {
    case Second::kNone: return function(Ending<Kind, Second::kNone>{});
    case Second::kFactorAlone:
      if constexpr (Lanes::kHasFactors) return function(Ending<Kind, Second::kFactorAlone>{});
      [[fallthrough]];
    case Second::kFactor:
      if constexpr (Lanes::kHasFactors) return function(Ending<Kind, Second::kFactor>{});
      [[fallthrough]];
    case Second::kExact: return function(Ending<Kind, Second::kExact>{});
  }
}

// Calls `function` with the Ending of the parameters.
template <typename Function>
void with_ending(const Finish& f, Function&& function) {
  switch (f.store) {
    case Store::kByte: return with_second<Store::kByte>(f, function);
    case Store::kWord: return with_second<Store::kWord>(f, function);
    case Store::kReal: return with_second<Store::kReal>(f, function);
  }
}
