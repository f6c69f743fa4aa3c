// Parts of the products of bytes that AVX512-VNNI and AMX share. Include after finish.inl, with `Lanes` of 16 lanes.

// The epilogue of one result of a panel, of which `columns` are stored.
template <Store Kind, Second Again>
inline void finish_bytes(Lanes::Integer top, Lanes::Integer middle, const Panel& panel, const Finish& finish, int columns,
                         std::uint8_t* out) {
  constexpr std::size_t kBytes = size_of(Kind);
  const Lanes::Integer sum = _mm512_add_epi32(_mm512_slli_epi32(top, 8), middle);
  if (columns >= kPanel) {
    finish_lanes<Kind, Again>(sum, panel, finish, 0, out);
    return;
  }
  alignas(64) std::uint8_t results[kPanel * kBytes];
  finish_lanes<Kind, Again>(sum, panel, finish, 0, results);
  Lanes::copy(out, results, static_cast<std::size_t>(columns) * kBytes);
}

// With t = min(x, 32639) + 32896, t has the bytes of x with 128 added to both.
void split_words(const PixelRun& run, std::uint8_t* high, std::ptrdiff_t low_plane) {
  const PixelRun r = run;
  const auto moved = [](__m512i x) {
    return _mm512_add_epi16(_mm512_min_epi16(x, _mm512_set1_epi16(32639)), _mm512_set1_epi16(static_cast<short>(32896)));
  };
  for (std::ptrdiff_t pixel = 0; pixel < r.count; ++pixel, high += r.channels) {
    const std::uint8_t* from = r.pixels + pixel * r.pitch;
    for (std::ptrdiff_t at = 0; at < r.channels; at += 32) {
      const std::ptrdiff_t rest = r.channels - at;
      const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
      const __m512i words = moved(_mm512_maskz_loadu_epi16(mask, from + 2 * at));
      _mm256_mask_storeu_epi8(high + at, mask, _mm512_cvtepi16_epi8(_mm512_srli_epi16(words, 8)));
      _mm256_mask_storeu_epi8(high + low_plane + at, mask, _mm512_cvtepi16_epi8(words));
    }
  }
}

// Defined by the file of the instruction set.
template <bool IsWide, Store Kind, Second Again>
void multiply_tile(const ByteTile& tile);

void multiply(const ByteTile& tile) {
  with_ending(*tile.finish, [&](auto ending) {
    if (tile.is_wide) {
      multiply_tile<true, ending.kStore, ending.kSecond>(tile);
    } else {
      multiply_tile<false, ending.kStore, ending.kSecond>(tile);
    }
  });
}
