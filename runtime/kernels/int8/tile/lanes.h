// Vector functions of the AVX512-VNNI kernels. Only for files that are compiled for this instruction set. Everything is
// in an unnamed namespace, so that the linker merges nothing with code for the baseline.
#pragma once

// GCC 12 warns about uninitialized registers (`__m512i y = y`) in its own headers: GCC bug 105593.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>
#include <utility>

#include "int8/tile/tile.h"

#define TPU_INLINED __attribute__((always_inline))
#define TPU_INLINE inline TPU_INLINED

namespace tpuconvert::avx512 {
namespace {

// Loops with a compile-time index. Otherwise, GCC 12 keeps arrays of registers in memory.
template <int Value>
struct Index {
  static constexpr int value = Value;
  TPU_INLINE constexpr operator int() const { return Value; }
};

template <typename Body, int... Values>
TPU_INLINE void unrolled_over(Body&& body, std::integer_sequence<int, Values...>) {
  (body(Index<Values>{}), ...);
}

template <int Count, typename Body>
TPU_INLINE void unrolled(Body&& body) {
  unrolled_over(body, std::make_integer_sequence<int, Count>{});
}

// Adds the dot products of four unsigned bytes of `a` and four signed bytes of `b` to each dword of `sum`. Assembler
// with tied operands, because GCC 12 copies and spills accumulators around the builtin.
TPU_INLINE void dot(__m512i& sum, __m512i a, __m512i b) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }
TPU_INLINE void dot(__m256i& sum, __m256i a, __m256i b) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }
TPU_INLINE void dot(__m128i& sum, __m128i a, __m128i b) { asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b)); }
TPU_INLINE void dot_memory(__m512i& sum, __m512i a, const void* b) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "m"(*static_cast<const __m512i_u*>(b)));
}

constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;

TPU_INLINE __m512i floor_of(__m512 value) { return _mm512_cvt_roundps_epi32(value, kDown); }

// True if the parameters of the epilogue include the offset.
constexpr bool includes_offset(TileEpilogue epilogue) {
  return epilogue == TileEpilogue::kSubnormal || epilogue == TileEpilogue::kOneFactor || epilogue == TileEpilogue::kWords;
}

// Parameters of an epilogue in registers.
struct LaneFactors {
  __m512 factor, second;
  const float* kink;

  TPU_INLINE LaneFactors() = default;
  TPU_INLINE explicit LaneFactors(const LaneParameters& parameters)
      : factor(_mm512_load_ps(parameters.factor)), second(_mm512_load_ps(parameters.second)), kink(parameters.kink) {}
};

// The epilogue up to the conversion to integers; see TileEpilogue.
template <TileEpilogue Epilogue>
TPU_INLINE __m512i requantize(__m512i sum, const LaneFactors& factors) {
  static_assert(Epilogue != TileEpilogue::kSums, "sums are not rescaled in registers");
  if constexpr (Epilogue == TileEpilogue::kSubnormal) {
    return _mm512_castps_si512(_mm512_fmadd_round_ps(_mm512_castsi512_ps(sum), factors.factor, factors.second, kDown));
  }
  const __m512 x = _mm512_cvtepi32_ps(sum);
  const __m512 factor = factors.factor, second = factors.second;
  if constexpr (Epilogue == TileEpilogue::kOneFactor || Epilogue == TileEpilogue::kWords) {
    return floor_of(_mm512_fmadd_round_ps(x, factor, second, kDown));
  } else if constexpr (Epilogue == TileEpilogue::kTwoFactors) {
    return floor_of(_mm512_fmadd_round_ps(x, factor, _mm512_mul_ps(x, second), kDown));
  } else {
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    const __m512i kink = _mm512_load_si512(factors.kink);
    // 0xCA selects the second operand where the first one has a set bit, otherwise the third one.
    const __m512i signed_kink = _mm512_ternarylogic_epi32(sign, _mm512_castps_si512(x), kink, 0xCA);
    return floor_of(_mm512_fmadd_round_ps(
        x, factor, _mm512_fmadd_ps(x, second, _mm512_castsi512_ps(signed_kink)), kDown));
  }
}

template <TileEpilogue Epilogue>
TPU_INLINE __m512i requantize(__m512i sum, const LaneParameters& parameters) {
  return requantize<Epilogue>(sum, LaneFactors(parameters));
}

// (v + 1 + 2 * offset) >> 1 on 16-bit lanes; `doubled_offset` is 2 * offset + 1. Saturation is monotone, and a
// saturated value is outside of 0..255 afterwards, because |offset| < 2^13.
TPU_INLINE __m512i halved(__m512i v, __m512i doubled_offset) {
  return _mm512_srai_epi16(_mm512_adds_epi16(v, doubled_offset), 1);
}

// Restores the order of four accumulators of 16 results, saturated to unsigned bytes.
TPU_INLINE __m512i in_order(__m512i packed) {
  // After two packs, 128-bit lane l contains results 4 * l .. 4 * l + 3 of each accumulator, one accumulator after
  // another.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(order, packed);
}

// Restores the column order of four accumulators (see lane_of) by transposing the 128-bit quarters of the registers.
TPU_INLINE void transpose_quarters(__m512i (&x)[4]) {
  const __m512i a = _mm512_shuffle_i32x4(x[0], x[1], 0x88), b = _mm512_shuffle_i32x4(x[0], x[1], 0xDD);
  const __m512i c = _mm512_shuffle_i32x4(x[2], x[3], 0x88), d = _mm512_shuffle_i32x4(x[2], x[3], 0xDD);
  x[0] = _mm512_shuffle_i32x4(a, c, 0x88);
  x[1] = _mm512_shuffle_i32x4(b, d, 0x88);
  x[2] = _mm512_shuffle_i32x4(a, c, 0xDD);
  x[3] = _mm512_shuffle_i32x4(b, d, 0xDD);
}

struct Limits {
  __m512i low, high;
};

TPU_INLINE __m512i clamp(__m512i bytes, const Limits& limits) {
  return _mm512_min_epu8(_mm512_max_epu8(bytes, limits.low), limits.high);
}

TPU_INLINE __m512i look_up(const std::uint8_t* lut, __m512i bytes) {
  const __m512i lower = _mm512_permutex2var_epi8(_mm512_loadu_si512(lut), bytes, _mm512_loadu_si512(lut + 64));
  const __m512i upper = _mm512_permutex2var_epi8(_mm512_loadu_si512(lut + 128), bytes, _mm512_loadu_si512(lut + 192));
  return _mm512_mask_blend_epi8(_mm512_movepi8_mask(bytes), lower, upper);
}

}  // namespace
}  // namespace tpuconvert::avx512
