// The tile kernel, instantiated by one file per epilogue. Only for files compiled for AVX512-VNNI.
#pragma once

#include "int8/tile/tile_results.h"

namespace tpuconvert::avx512 {
namespace {

// A 32-bit integer without alignment.
// A typedef, because Clang ignores the alignment in an alias declaration.
typedef std::int32_t FourBytes __attribute__((aligned(1), may_alias));

template <int Rows, int Full, bool Half, TileEpilogue Epilogue, bool Residual>
__attribute__((noinline)) void tile(const TileArguments& arguments) {
  constexpr int kAccumulators = Full + Half;
  // weights kept in registers
  constexpr int kHeld = 31 - Rows * kAccumulators < Full ? 31 - Rows * kAccumulators : Full;
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
  const std::uint32_t* skips = arguments.skips;
  const std::ptrdiff_t ahead = arguments.ahead;
  const std::ptrdiff_t bytes = static_cast<std::ptrdiff_t>(arguments.segment_bytes);
  for (std::size_t segment = arguments.segments; segment != 0; --segment) {
    const std::uint8_t* end[Rows];
    unrolled<Rows>([&](auto row) TPU_INLINED { end[row] = inputs[row] + (arguments.input_offset + bytes); });
    inputs += Rows;
    std::ptrdiff_t at = -bytes;
    do {
      __m512i held[kHeld > 0 ? kHeld : 1];
      __m256i held_half;
      if constexpr (Full == 4) _mm_prefetch(weights + ahead, _MM_HINT_T1);
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
    weights += *skips++ * kStepBytes;
  }
  if constexpr (Half) {
    unrolled<Rows>([&](auto row) TPU_INLINED { sums[row][Full] = _mm512_zextsi256_si512(half_sums[row]); });
  }

  store_results<Rows, kAccumulators, Epilogue, Residual>(arguments, ResultConstants<kAccumulators>(arguments), sums);
}

template <int Full, bool Half, TileEpilogue Epilogue, bool Residual, int Rows = 1>
TileKernel with_rows(int rows) {
  if constexpr (Rows <= largest_rows(Full, Half)) {
    return rows == Rows ? tile<Rows, Full, Half, Epilogue, Residual> : with_rows<Full, Half, Epilogue, Residual, Rows + 1>(rows);
  } else {
    return nullptr;
  }
}

template <TileEpilogue Epilogue, bool Residual = false>
TileKernel tile_of(int full, int rows) {
  switch (full) {
    case 1: return with_rows<1, false, Epilogue, Residual>(rows);
    case 2: return with_rows<2, false, Epilogue, Residual>(rows);
    case 3: return with_rows<3, false, Epilogue, Residual>(rows);
    case 4: return with_rows<4, false, Epilogue, Residual>(rows);
    default: return nullptr;
  }
}

template <TileEpilogue Epilogue>
TileKernel tile_of(int full, bool half, int rows) {
  if (!half) return tile_of<Epilogue>(full, rows);
  return full == 0   ? with_rows<0, true, Epilogue, false>(rows)
         : full == 1 ? with_rows<1, true, Epilogue, false>(rows)
                     : nullptr;
}

}  // namespace
}  // namespace tpuconvert::avx512
