// Kernels of the 16-bit convolution. The including file defines `Lanes`, the operations on its registers, and includes
// this file in an unnamed namespace. `part` is the index of a register within a panel.

#include "int16/finish.inl"

template <Store Kind, Second Again>
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
    for (std::ptrdiff_t pair = 0; pair < segment.count; ++pair, weights += kPanel) {
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
      finish_lanes<Kind, Again>(sums[row][part], *tile.panel, *tile.finish, part, to);
    });
    if (to == results) Lanes::copy(out, results, static_cast<std::size_t>(tile.columns) * kBytes);
  });
}

// `OwnLanes` is a parameter, because only lanes with factors have the function.
template <typename OwnLanes>
inline void store_limited(const Lanes::Integer (&values)[4], const Finish& f, std::uint8_t* out, std::ptrdiff_t pitch) {
  OwnLanes::store_limited(values, f.second_low, f.second_high, out, pitch);
}

template <Store Kind, Second Again, int Taps>
void depthwise_row(const DepthwiseRow& row) {
  constexpr std::size_t kBytes = size_of(Kind);
  const std::ptrdiff_t period = std::ptrdiff_t{row.panel_count} * kPanel;
  const std::ptrdiff_t step = row.step;
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
          from[tap] = row.pairs + row.taps[tap] + panel * kPanel + part * Lanes::kCount;
        });
        const auto sum_at = [&](int repeat) __attribute__((always_inline)) {
          Lanes::Integer sum = bias;
          unrolled<Taps>([&](auto tap) __attribute__((always_inline)) {
            sum = Lanes::add_products(sum, Lanes::load(from[tap] + repeat * step), w[tap]);
          });
          return sum;
        };
        int repeat = 0;
        if constexpr (Lanes::kHasFactors && Kind == Store::kByte && Again != Second::kNone) {
          for (; repeat + 4 <= row.repeats; repeat += 4, at += 4 * period) {
            Lanes::Integer values[4];
            unrolled<4>([&](auto i) __attribute__((always_inline)) {
              values[i] = rescaled<Again>(sum_at(repeat + i), own, finish, part);
            });
            store_limited<Lanes>(values, finish, row.output + at, period);
          }
        }
        for (; repeat < row.repeats; ++repeat, at += period)
          finish_lanes<Kind, Again>(sum_at(repeat), own, finish, part, row.output + static_cast<std::size_t>(at) * kBytes);
      } else {
        for (int repeat = 0; repeat < row.repeats; ++repeat, at += period) {
          Lanes::Integer sum = bias;
          for (int tap = 0; tap < row.tap_count; ++tap)
            sum = Lanes::add_products(sum, Lanes::load(row.pairs + row.taps[tap] + repeat * step + panel * kPanel + part * Lanes::kCount),
                                      Lanes::load(weights + tap * kPanel + part * Lanes::kCount));
          finish_lanes<Kind, Again>(sum, own, finish, part, row.output + static_cast<std::size_t>(at) * kBytes);
        }
      }
    }
  }
}

void multiply(const Tile& tile) {
  with_ending(*tile.finish, [&](auto ending) { multiply_tile<ending.kStore, ending.kSecond>(tile); });
}

void depthwise(const DepthwiseRow& row) {
  with_ending(*row.finish, [&](auto ending) {
    if (row.tap_count == kTiedTaps) {
      depthwise_row<ending.kStore, ending.kSecond, kTiedTaps>(row);
    } else {
      depthwise_row<ending.kStore, ending.kSecond, 0>(row);
    }
  });
}

// Returns the number of words that it expanded.
template <typename OwnLanes>
inline std::ptrdiff_t expand_vectors(const std::int16_t* x, std::ptrdiff_t count, std::int32_t* pairs) {
  std::ptrdiff_t at = 0;
  if constexpr (OwnLanes::kHasFactors)
    for (; at + 2 * OwnLanes::kCount <= count; at += 2 * OwnLanes::kCount) OwnLanes::store_pairs(x + at, pairs + at);
  return at;
}

void expand_words(const PixelRun& run, std::int32_t* pairs) {
  const PixelRun r = run;
  for (std::ptrdiff_t pixel = 0; pixel < r.count; ++pixel, pairs += r.channels) {
    const auto* x = reinterpret_cast<const std::int16_t*>(r.pixels + pixel * r.pitch);
    std::ptrdiff_t at = 0;
    at = expand_vectors<Lanes>(x, r.channels, pairs);
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
