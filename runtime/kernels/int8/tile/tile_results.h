// The epilogue of the register tiles. Only for files compiled for AVX512-VNNI or AMX.
#pragma once

#include "int8/tile/lanes.h"

namespace tpuconvert::avx512 {
namespace {

// Packs four accumulators of rescaled results to bytes. Columns of a single row are in order; otherwise each
// accumulator has 16 contiguous bytes.
template <int Accumulators, TileEpilogue Epilogue>
TPU_INLINE __m512i packed(__m512i first, __m512i second, __m512i third, __m512i fourth, __m512i doubled_offset) {
  __m512i lower = _mm512_packs_epi32(first, second), upper = _mm512_packs_epi32(third, fourth);
  if constexpr (!includes_offset(Epilogue)) {
    lower = halved(lower, doubled_offset);
    upper = halved(upper, doubled_offset);
  }
  const __m512i bytes = _mm512_packus_epi16(lower, upper);
  return Accumulators == 4 ? bytes : in_order(bytes);
}

// Mask of the bytes to store of a contiguous vector.
template <int Accumulators, int Count>
TPU_INLINE std::uint64_t mask_of(const TileArguments& arguments) {
  return Accumulators > 2 ? arguments.mask : ~std::uint64_t{0} >> (64 - 16 * Accumulators * Count);
}

// Parameters of the residual add in registers, for all rows of a tile. On Zen 4, unpack instructions and shifts by a
// vector do not use the multiplication units, unlike two-operand shuffles and shifts by a single count.
struct ResidualRegisters {
  __m512i factors[4], offsets[4], shift;
  Limits limits;

  TPU_INLINE explicit ResidualRegisters(const TileResidual& residual)
      : shift(_mm512_set1_epi32(residual.shift)),
        limits{_mm512_set1_epi8(static_cast<char>(residual.low)), _mm512_set1_epi8(static_cast<char>(residual.high))} {
    unrolled<4>([&](auto i) TPU_INLINED {
      factors[i] = _mm512_loadu_si512(residual.factors + kLanes * i);
      offsets[i] = _mm512_loadu_si512(residual.offsets + kLanes * i);
    });
  }

  TPU_INLINE __m512i add(__m512i results, __m512i others) const {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i lower = _mm512_unpacklo_epi8(results, others), upper = _mm512_unpackhi_epi8(results, others);
    // 32-bit pairs: one byte of each tensor, widened to 16 bits.
    const __m512i pairs[4] = {_mm512_unpacklo_epi8(lower, zero), _mm512_unpackhi_epi8(lower, zero),
                              _mm512_unpacklo_epi8(upper, zero), _mm512_unpackhi_epi8(upper, zero)};
    __m512i sums[4];
    unrolled<4>([&](auto i) TPU_INLINED {
      sums[i] = _mm512_srav_epi32(_mm512_dpwssd_epi32(offsets[i], pairs[i], factors[i]), shift);
    });
    return clamp(_mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3])),
                   limits);
  }
};

// Stores the rows that share a byte vector: one row of 3 or 4 accumulators, two rows of 2, or four rows of 1.
template <int Accumulators, int Row, int Count>
TPU_INLINE void store_rows(const TileArguments& arguments, __m512i bytes) {
  std::uint8_t* const* outputs = arguments.outputs + Row;
  const std::size_t offset = arguments.output_offset;
  if constexpr (Accumulators > 2) {
    _mm512_mask_storeu_epi8(outputs[0] + offset, arguments.mask, bytes);
  } else if (arguments.is_adjacent) {
    _mm512_mask_storeu_epi8(outputs[0] + offset, mask_of<Accumulators, Count>(arguments), bytes);
  } else if constexpr (Accumulators == 2) {
    const __mmask32 mask = static_cast<__mmask32>(arguments.mask);
    _mm256_mask_storeu_epi8(outputs[0] + offset, mask, _mm512_castsi512_si256(bytes));
    if constexpr (Count > 1) _mm256_mask_storeu_epi8(outputs[1] + offset, mask, _mm512_extracti64x4_epi64(bytes, 1));
  } else {
    const __mmask16 mask = static_cast<__mmask16>(arguments.mask);
    unrolled<Count>([&](auto i) TPU_INLINED {
      _mm_mask_storeu_epi8(outputs[i] + offset, mask, _mm512_extracti32x4_epi32(bytes, i));
    });
  }
}

// Loads the bytes of the other tensor that correspond to the same byte vector.
template <int Accumulators, int Row, int Count>
TPU_INLINE __m512i load_others(const TileArguments& arguments) {
  const std::uint8_t* const* others = arguments.residual.others + Row;
  const std::size_t offset = arguments.output_offset;
  if (Accumulators > 2 || arguments.residual.is_adjacent)
    return _mm512_maskz_loadu_epi8(mask_of<Accumulators, Count>(arguments), others[0] + offset);
  if constexpr (Accumulators == 2) {
    const __m256i lower = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(others[0] + offset));
    if constexpr (Count == 1) return _mm512_zextsi256_si512(lower);
    return _mm512_inserti64x4(_mm512_zextsi256_si512(lower),
                              _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(others[Count - 1] + offset)), 1);
  } else {
    __m512i found = _mm512_setzero_si512();
    unrolled<Count>([&](auto i) TPU_INLINED {
      found = _mm512_inserti32x4(found, _mm_loadu_si128(reinterpret_cast<const __m128i_u*>(others[i] + offset)), i);
    });
    return found;
  }
}

// Two accumulators of results as words, in their order.
TPU_INLINE __m512i words_of(__m512i first, __m512i second) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packs_epi32(first, second));
}

TPU_INLINE __m512i limited_words(const TileArguments& arguments, __m512i words) {
  const __m512i low = _mm512_set1_epi16(static_cast<short>(arguments.low));
  return _mm512_min_epi16(_mm512_max_epi16(words, low), _mm512_set1_epi16(static_cast<short>(arguments.high)));
}

// Stores a row of results of 16 bits. Columns are in the order of lane_of.
template <int Accumulators>
TPU_INLINE void store_words(const TileArguments& arguments, std::uint8_t* output, const __m512i (&results)[Accumulators]) {
  auto* to = reinterpret_cast<std::int16_t*>(output + arguments.output_offset);
  const auto store = [&](int i, __m512i words) TPU_INLINED {
    _mm512_mask_storeu_epi16(to + 32 * i, static_cast<__mmask32>(arguments.mask >> (32 * i)), limited_words(arguments, words));
  };
  if constexpr (Accumulators == 4) {
    // Packing interleaves groups of four lanes: 128-bit lane l of `lower` has columns 16 * l .. 16 * l + 7.
    const __m512i lower = _mm512_packs_epi32(results[0], results[1]), upper = _mm512_packs_epi32(results[2], results[3]);
    store(0, _mm512_permutex2var_epi64(lower, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), upper));
    store(1, _mm512_permutex2var_epi64(lower, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), upper));
  } else {
    store(0, words_of(results[0], results[Accumulators > 1 ? 1 : 0]));
    if constexpr (Accumulators == 3) store(1, words_of(results[2], results[2]));
  }
}

// Stores two rows of one accumulator, of which all columns are stored.
TPU_INLINE void store_word_rows(const TileArguments& arguments, std::uint8_t* const* outputs, __m512i first, __m512i second) {
  const __m512i words = limited_words(arguments, words_of(first, second));
  std::uint8_t* const to = outputs[0] + arguments.output_offset;
  if (arguments.is_adjacent) {
    _mm512_storeu_si512(to, words);
  } else {
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to), _mm512_castsi512_si256(words));
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(outputs[1] + arguments.output_offset), _mm512_extracti64x4_epi64(words, 1));
  }
}

// Stores rows of results of 16 bits.
template <int Rows, int Accumulators>
TPU_INLINE void store_all_words(const TileArguments& arguments, const __m512i (&results)[Rows][Accumulators]) {
  if constexpr (Accumulators == 1 && Rows > 1) {
    if (static_cast<__mmask16>(arguments.mask) == 0xFFFF) {
      unrolled<Rows / 2>([&](auto pair) TPU_INLINED {
        constexpr int kRow = 2 * decltype(pair)::value;
        store_word_rows(arguments, arguments.outputs + kRow, results[kRow][0], results[kRow + 1][0]);
      });
      if constexpr (Rows % 2 == 1) store_words<1>(arguments, arguments.outputs[Rows - 1], results[Rows - 1]);
      return;
    }
  }
  unrolled<Rows>([&](auto row) TPU_INLINED { store_words<Accumulators>(arguments, arguments.outputs[row], results[row]); });
}

// Parameters of the epilogue of a tile in registers.
template <int Accumulators>
struct ResultConstants {
  LaneFactors lanes[Accumulators];
  __m512i doubled_offset;
  Limits limits;
  bool has_low, has_high;

  TPU_INLINE explicit ResultConstants(const TileArguments& arguments)
      : doubled_offset(_mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1))),
        limits{_mm512_set1_epi8(static_cast<char>(arguments.low)), _mm512_set1_epi8(static_cast<char>(arguments.high))},
        has_low(arguments.low != 0),
        has_high(arguments.high != 255) {
    unrolled<Accumulators>([&](auto i) TPU_INLINED { lanes[i] = LaneFactors(arguments.parameters[i]); });
  }
};

// The epilogue of a tile: rescales the accumulators of all rows and stores them. `constants` are not used for kSums.
template <int Rows, int kAccumulators, TileEpilogue Epilogue, bool Residual>
TPU_INLINE void store_results(const TileArguments& arguments, const ResultConstants<kAccumulators>& constants,
                              __m512i (&sums)[Rows][kAccumulators]) {
  if constexpr (Epilogue == TileEpilogue::kSums) {
    unrolled<Rows>([&](auto row) TPU_INLINED {
      if constexpr (kAccumulators == 4) transpose_quarters(sums[row]);
      unrolled<kAccumulators>([&](auto i) TPU_INLINED {
        _mm512_store_si512(arguments.sums + (row * kAccumulators + i) * kLanes, sums[row][i]);
      });
    });
    return;
  }
  if constexpr (Epilogue != TileEpilogue::kSums) {
    unrolled<kAccumulators>([&](auto i) TPU_INLINED {
      unrolled<Rows>([&](auto row) TPU_INLINED {
        sums[row][i] = requantize<Epilogue>(sums[row][i], constants.lanes[i]);
      });
    });
  }
  if constexpr (Epilogue == TileEpilogue::kWords) {
    store_all_words<Rows, kAccumulators>(arguments, sums);
  } else if constexpr (Epilogue != TileEpilogue::kSums) {
    constexpr int kRowsAtOnce = kAccumulators > 2 ? 1 : 4 / kAccumulators;
    constexpr int kGroups = (Rows + kRowsAtOnce - 1) / kRowsAtOnce;
    __m512i bytes[kGroups];
    unrolled<kGroups>([&](auto group) TPU_INLINED {
      constexpr int kRow = decltype(group)::value * kRowsAtOnce;
      constexpr int kCount = Rows - kRow < kRowsAtOnce ? Rows - kRow : kRowsAtOnce;
      // With fewer than four accumulators, the last one is repeated in place of the missing ones; the copies are not
      // stored.
      constexpr int kLast = kCount * kAccumulators - 1;
      constexpr int k1 = kLast < 1 ? kLast : 1, k2 = kLast < 2 ? kLast : 2, k3 = kLast < 3 ? kLast : 3;
      __m512i found = packed<kAccumulators, Epilogue>(sums[kRow][0], sums[kRow + k1 / kAccumulators][k1 % kAccumulators],
                                   sums[kRow + k2 / kAccumulators][k2 % kAccumulators],
                                   sums[kRow + k3 / kAccumulators][k3 % kAccumulators], constants.doubled_offset);
      if (constants.has_low) found = _mm512_max_epu8(found, constants.limits.low);
      if (constants.has_high) found = _mm512_min_epu8(found, constants.limits.high);
      if (arguments.lut != nullptr) found = look_up(arguments.lut, found);
      if constexpr (Residual) {
        bytes[group] = found;
      } else {
        store_rows<kAccumulators, kRow, kCount>(arguments, found);
      }
    });
    if constexpr (Residual) {
      const ResidualRegisters residual(arguments.residual);
      unrolled<kGroups>([&](auto group) TPU_INLINED {
        constexpr int kRow = decltype(group)::value * kRowsAtOnce;
        constexpr int kCount = Rows - kRow < kRowsAtOnce ? Rows - kRow : kRowsAtOnce;
        const __m512i others = load_others<kAccumulators, kRow, kCount>(arguments);
        store_rows<kAccumulators, kRow, kCount>(arguments, residual.add(bytes[group], others));
      });
    }
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
