// The tile kernel itself, instantiated by one file per form. Only for files compiled for AVX512-VNNI.
#pragma once

#include "int8/avx512_lanes.h"

namespace tpuconvert::avx512 {
namespace {

// At any address.
using FourBytes = std::int32_t __attribute__((aligned(1), may_alias));

// Four accumulators of rescaled results as bytes, 16 of each in turn.
template <TileForm Form>
TPU_INLINE __m512i packed(__m512i first, __m512i second, __m512i third, __m512i fourth, __m512i doubled_offset) {
  __m512i lower = _mm512_packs_epi32(first, second), upper = _mm512_packs_epi32(third, fourth);
  if constexpr (Form != TileForm::kOneFactor) {
    lower = halved(lower, doubled_offset);
    upper = halved(upper, doubled_offset);
  }
  return in_order(_mm512_packus_epi16(lower, upper));
}

// Stores the rows that share a byte vector: one of 3 or 4 accumulators, two of 2, four of 1.
template <int Accumulators, int Row, int Count>
TPU_INLINE void store_rows(const TileArguments& arguments, __m512i bytes) {
  std::uint8_t* const* outputs = arguments.outputs + Row;
  const std::size_t offset = arguments.output_offset;
  if constexpr (Accumulators > 2) {
    _mm512_mask_storeu_epi8(outputs[0] + offset, arguments.mask, bytes);
  } else if (arguments.is_adjacent) {
    constexpr std::uint64_t kMask = ~std::uint64_t{0} >> (64 - 16 * Accumulators * Count);
    _mm512_mask_storeu_epi8(outputs[0] + offset, kMask, bytes);
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

template <int Rows, int Full, bool Half, TileForm Form>
__attribute__((noinline)) void tile(const TileArguments& arguments) {
  constexpr int kAccumulators = Full + Half;
  constexpr int kHeld = 31 - Rows * kAccumulators < Full ? 31 - Rows * kAccumulators : Full;  // weights in registers
  static_assert(kHeld >= Full - 1, "at most one operand of a step comes from memory");
  constexpr std::size_t kStepBytes = 64 * Full + 32 * Half;

  __m512i sums[Rows][kAccumulators];
  __m256i half_sums[Rows];
  unrolled<Rows>([&](auto row) TPU_INLINED {
    unrolled<Full>([&](auto i) TPU_INLINED { sums[row][i] = _mm512_load_si512(arguments.parameters[i].bias); });
    if constexpr (Half)
      half_sums[row] = _mm256_load_si256(reinterpret_cast<const __m256i*>(arguments.parameters[Full].bias));
  });

  const std::int8_t* weights = arguments.weights;
  const std::uint8_t* const* inputs = arguments.inputs;
  const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(arguments.segment_bytes);
  for (std::size_t segment = arguments.segments; segment != 0; --segment) {
    const std::uint8_t* end[Rows];
    unrolled<Rows>([&](auto row) TPU_INLINED { end[row] = inputs[row] + (arguments.input_offset + bytes); });
    inputs += Rows;
    std::ptrdiff_t at = -bytes;
    do {
      __m512i held[kHeld > 0 ? kHeld : 1];
      __m256i held_half;
      unrolled<kHeld>([&](auto i) TPU_INLINED { held[i] = _mm512_loadu_si512(weights + 64 * i); });
      if constexpr (Half) held_half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 64 * Full));
      unrolled<Rows>([&](auto row) TPU_INLINED {
        const __m512i input = _mm512_set1_epi32(*reinterpret_cast<const FourBytes*>(end[row] + at));
        unrolled<kHeld>([&](auto i) TPU_INLINED { dot(sums[row][i], input, held[i]); });
        if constexpr (kHeld < Full) dot_memory(sums[row][kHeld], input, weights + 64 * kHeld);
        if constexpr (Half) dot(half_sums[row], _mm512_castsi512_si256(input), held_half);
      });
      weights += kStepBytes;
      at += 4;
    } while (at != 0);
  }
  if constexpr (Half) {
    unrolled<Rows>([&](auto row) TPU_INLINED { sums[row][Full] = _mm512_zextsi256_si512(half_sums[row]); });
  }

  if constexpr (Form == TileForm::kSums) {
    unrolled<Rows>([&](auto row) TPU_INLINED {
      unrolled<kAccumulators>([&](auto i) TPU_INLINED {
        _mm512_store_si512(arguments.sums + (row * kAccumulators + i) * kLanes, sums[row][i]);
      });
    });
    return;
  }
  if constexpr (Form != TileForm::kSums) {
    unrolled<kAccumulators>([&](auto i) TPU_INLINED {
      unrolled<Rows>([&](auto row) TPU_INLINED {
        sums[row][i] = rescaled<Form>(sums[row][i], arguments.parameters[i]);
      });
    });
    const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1));
    const bool is_limited = arguments.low != 0 || arguments.high != 255;
    const Limits limits{_mm512_set1_epi8(static_cast<char>(arguments.low)),
                        _mm512_set1_epi8(static_cast<char>(arguments.high))};
    constexpr int kRowsAtOnce = kAccumulators > 2 ? 1 : 4 / kAccumulators;
    unrolled<(Rows + kRowsAtOnce - 1) / kRowsAtOnce>([&](auto group) TPU_INLINED {
      constexpr int kRow = decltype(group)::value * kRowsAtOnce;
      constexpr int kCount = Rows - kRow < kRowsAtOnce ? Rows - kRow : kRowsAtOnce;
      // Where there are not four accumulators, the last takes the place of the missing ones and is not stored.
      constexpr int kLast = kCount * kAccumulators - 1;
      constexpr int k1 = kLast < 1 ? kLast : 1, k2 = kLast < 2 ? kLast : 2, k3 = kLast < 3 ? kLast : 3;
      __m512i bytes = packed<Form>(sums[kRow][0], sums[kRow + k1 / kAccumulators][k1 % kAccumulators],
                                   sums[kRow + k2 / kAccumulators][k2 % kAccumulators],
                                   sums[kRow + k3 / kAccumulators][k3 % kAccumulators], doubled_offset);
      if (is_limited) bytes = limited(bytes, limits);
      if (arguments.lut != nullptr) bytes = looked_up(arguments.lut, bytes);
      store_rows<kAccumulators, kRow, kCount>(arguments, bytes);
    });
  }
}

template <int Full, bool Half, TileForm Form, int Rows = 1>
TileKernel with_rows(int rows) {
  if constexpr (Rows <= largest_rows(Full, Half)) {
    return rows == Rows ? tile<Rows, Full, Half, Form> : with_rows<Full, Half, Form, Rows + 1>(rows);
  } else {
    return nullptr;
  }
}

template <TileForm Form>
TileKernel tile_of(int full, bool half, int rows) {
  if (half) return full == 0 ? with_rows<0, true, Form>(rows) : full == 1 ? with_rows<1, true, Form>(rows) : nullptr;
  switch (full) {
    case 1: return with_rows<1, false, Form>(rows);
    case 2: return with_rows<2, false, Form>(rows);
    case 3: return with_rows<3, false, Form>(rows);
    case 4: return with_rows<4, false, Form>(rows);
    default: return nullptr;
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
