// Kernels of the 16-bit convolution. The including file defines `Lanes`, the operations on its registers, and includes
// this file in an unnamed namespace. `part` is the index of a register within a panel.

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

template <Store Kind, bool HasSecond>
inline void finish_lanes(Lanes::Integer sum, const Panel& panel, const Finish& f, int part, std::uint8_t* out) {
  Lanes::Integer value = Lanes::limited(Lanes::requantized(sum, panel.rescale, part), f.low, f.high);
  if constexpr (HasSecond) value = Lanes::limited(Lanes::requantized(value, panel.second, part), f.second_low, f.second_high);
  if constexpr (Kind == Store::kByte) {
    Lanes::store_bytes(out + part * Lanes::kCount, value);
  } else if constexpr (Kind == Store::kWord) {
    Lanes::store_words(out + part * Lanes::kCount * 2, value);
  } else {
    Lanes::store_reals(out + part * Lanes::kCount * 4, value, f.zero, f.scale);
  }
}

constexpr std::size_t size_of(Store kind) { return kind == Store::kByte ? 1 : kind == Store::kWord ? 2 : 4; }

template <Store Kind, bool HasSecond>
void multiply_tile(const Tile& tile) {
  constexpr int kRows = Lanes::kRows;
  Lanes::Integer sums[kRows][kParts];
  unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
    unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
      sums[row][part] = Lanes::load(tile.panel->bias + part * Lanes::kCount);
    });
  });
  const std::int32_t* weights = tile.weights;
  for (int index = 0; index < tile.segment_count; ++index) {
    const Segment segment = tile.segments[index];
    const std::int32_t* pixels[kRows];
    unrolled<kRows>([&](auto row) __attribute__((always_inline)) { pixels[row] = tile.pixels[row] + segment.offset; });
    for (std::ptrdiff_t pair = 0; pair < segment.pairs; ++pair, weights += kPanel) {
      Lanes::Integer w[kParts];
      unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
        w[part] = Lanes::load(weights + part * Lanes::kCount);
      });
      unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
        const Lanes::Integer x = Lanes::all(pixels[row][pair]);
        unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
          sums[row][part] = Lanes::add_products(sums[row][part], x, w[part]);
        });
      });
    }
  }
  constexpr std::size_t kBytes = size_of(Kind);
  unrolled<kRows>([&](auto row) __attribute__((always_inline)) {
    if (row >= tile.rows) return;
    std::uint8_t* out = tile.outputs[row] + tile.offset;
    alignas(64) std::uint8_t results[kPanel * kBytes];
    std::uint8_t* to = tile.columns == kPanel ? out : results;
    unrolled<kParts>([&](auto part) __attribute__((always_inline)) {
      finish_lanes<Kind, HasSecond>(sums[row][part], *tile.panel, *tile.finish, part, to);
    });
    if (to == results) Lanes::copy(out, results, static_cast<std::size_t>(tile.columns) * kBytes);
  });
}

template <Store Kind, bool HasSecond, int Taps>
void depthwise_row(const DepthwiseRow& row) {
  constexpr std::size_t kBytes = size_of(Kind);
  const std::ptrdiff_t period = std::ptrdiff_t{row.panel_count} * kPanel;
  const Finish finish = *row.finish;  // local copies, so that stores do not force reloads
  for (int panel = 0; panel < row.panel_count; ++panel) {
    const std::int32_t* weights = row.weights + std::ptrdiff_t{panel} * row.tap_count * kPanel;
    const Panel own = row.panels[panel];
    for (int part = 0; part < kParts; ++part) {
      const Lanes::Integer bias = Lanes::load(own.bias + part * Lanes::kCount);
      std::ptrdiff_t at = std::ptrdiff_t{panel} * kPanel;
      if constexpr (Taps > 0) {
        Lanes::Integer w[Taps];
        const std::int32_t* from[Taps];
        unrolled<Taps>([&](auto tap) __attribute__((always_inline)) {
          w[tap] = Lanes::load(weights + tap * kPanel + part * Lanes::kCount);
          from[tap] = row.taps[tap] + part * Lanes::kCount;
        });
        for (int repeat = 0; repeat < row.repeats; ++repeat, at += period) {
          Lanes::Integer sum = bias;
          unrolled<Taps>([&](auto tap) __attribute__((always_inline)) {
            sum = Lanes::add_products(sum, Lanes::load(from[tap] + at), w[tap]);
          });
          finish_lanes<Kind, HasSecond>(sum, own, finish, part, row.output + static_cast<std::size_t>(at) * kBytes);
        }
      } else {
        for (int repeat = 0; repeat < row.repeats; ++repeat, at += period) {
          Lanes::Integer sum = bias;
          for (int tap = 0; tap < row.tap_count; ++tap)
            sum = Lanes::add_products(sum, Lanes::load(row.taps[tap] + at + part * Lanes::kCount),
                                      Lanes::load(weights + tap * kPanel + part * Lanes::kCount));
          finish_lanes<Kind, HasSecond>(sum, own, finish, part, row.output + static_cast<std::size_t>(at) * kBytes);
        }
      }
    }
  }
}

// Calls function(kind, has_second) with compile-time arguments.
template <typename Function>
void with_finish(const Finish& f, Function&& function) {
  const auto with_second = [&](auto kind) {
    if (f.has_second) {
      function(kind, Index<1>{});
    } else {
      function(kind, Index<0>{});
    }
  };
  switch (f.store) {
    case Store::kByte: return with_second(Index<static_cast<int>(Store::kByte)>{});
    case Store::kWord: return with_second(Index<static_cast<int>(Store::kWord)>{});
    case Store::kReal: return with_second(Index<static_cast<int>(Store::kReal)>{});
  }
}

void multiply(const Tile& tile) {
  with_finish(*tile.finish, [&](auto kind, auto second) {
    multiply_tile<static_cast<Store>(static_cast<int>(kind)), second != 0>(tile);
  });
}

void depthwise(const DepthwiseRow& row) {
  with_finish(*row.finish, [&](auto kind, auto second) {
    constexpr Store kKind = static_cast<Store>(static_cast<int>(kind));
    if (row.tap_count == kTiedTaps) {
      depthwise_row<kKind, second != 0, kTiedTaps>(row);
    } else {
      depthwise_row<kKind, second != 0, 0>(row);
    }
  });
}

void expand_words(const PixelRun& run, std::int32_t* pairs) {
  const PixelRun r = run;
  for (std::ptrdiff_t pixel = 0; pixel < r.count; ++pixel, pairs += r.channels) {
    const auto* x = reinterpret_cast<const std::int16_t*>(r.pixels + pixel * r.pitch);
    std::ptrdiff_t at = 0;
    for (; at + Lanes::kCount <= r.channels; at += Lanes::kCount)
      Lanes::store(pairs + at, Lanes::pair_of(Lanes::load_words(x + at)));
    for (; at < r.channels; ++at) {
      const std::int32_t value = x[at] < 32639 ? x[at] : 32639;
      const std::uint32_t byte = static_cast<std::uint32_t>((value + 128) >> 8);
      pairs[at] = static_cast<std::int32_t>((static_cast<std::uint32_t>(value) & 0xFFFFu) | byte << 16);
    }
  }
}

void expand_bytes(const PixelRun& run, int zero, std::int32_t* pairs) {
  for (std::ptrdiff_t pixel = 0; pixel < run.count; ++pixel, pairs += run.channels)
    for (std::ptrdiff_t at = 0; at < run.channels; ++at)
      pairs[at] = (run.pixels[pixel * run.pitch + at] - zero) & 0xFFFF;
}
