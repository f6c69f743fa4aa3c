// Rearrangement of bytes into registers of 16 columns, each with four adjacent bytes along the depth. Only for files
// compiled for AVX512-VNNI.
#pragma once

#include "int8/tile/lanes.h"

namespace tpuconvert::avx512 {
namespace {

TPU_INLINE __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : count <= 0 ? 0 : (__mmask64{1} << count) - 1;
}

// Loads bytes and subtracts `zero` modulo 256. Bytes with a clear mask bit are 0 and are not read.
TPU_INLINE __m512i bytes_without(__m512i zero, const std::uint8_t* from, __mmask64 mask) {
  return _mm512_maskz_sub_epi8(mask, _mm512_maskz_loadu_epi8(mask, from), zero);
}

// Columns that are computed by the lanes of an accumulator.
struct Columns {
  int first, step;  // first column; distance between groups of four lanes

  Columns(int accumulator, int accumulators)
      : first(lane_of(accumulator * kLanes, accumulators)), step(lane_of(4, accumulators)) {}

  TPU_INLINE int of(int lane) const { return first + lane / 4 * step + lane % 4; }
};

// Adds the four signed bytes of every dword to `sums`.
TPU_INLINE void add_quads(__m512i& sums, __m512i bytes) { dot(sums, _mm512_set1_epi8(1), bytes); }

// Adds the magnitudes of the four signed bytes of every dword to `sums`. The magnitude of -128 is 128.
TPU_INLINE void add_magnitudes(__m512i& sums, __m512i bytes) {
  dot(sums, _mm512_abs_epi8(bytes), _mm512_set1_epi8(1));
}

// Transposes 16 rows of 16 dwords in place.
TPU_INLINE void transpose(__m512i (&x)[16]) {
  __m512i y[16];
  unrolled<8>([&](auto i) TPU_INLINED {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  });
  unrolled<4>([&](auto i) TPU_INLINED {
    x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
    x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
  });
  // 128-bit lane l of x[4 * i + j] contains dword 4 * l + j of rows 4 * i .. 4 * i + 3.
  unrolled<4>([&](auto j) TPU_INLINED {
    const __m512i a = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88), b = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xDD);
    y[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    y[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    y[8 + j] = _mm512_shuffle_i32x4(a, c, 0xDD);
    y[12 + j] = _mm512_shuffle_i32x4(b, d, 0xDD);
  });
  unrolled<16>([&](auto i) TPU_INLINED { x[i] = y[i]; });
}

// Interleaves four rows of 64 bytes into four registers of 16 columns, adjacent or in the order of lane_of().
template <bool AreNeighbours>
TPU_INLINE void interleave(__m512i (&rows)[4]) {
  const __m512i low01 = _mm512_unpacklo_epi8(rows[0], rows[1]), high01 = _mm512_unpackhi_epi8(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(rows[2], rows[3]), high23 = _mm512_unpackhi_epi8(rows[2], rows[3]);
  // 128-bit lane l of x[j] contains columns 16 * l + 4 * j .. 16 * l + 4 * j + 3.
  const __m512i x0 = _mm512_unpacklo_epi16(low01, low23), x1 = _mm512_unpackhi_epi16(low01, low23);
  const __m512i x2 = _mm512_unpacklo_epi16(high01, high23), x3 = _mm512_unpackhi_epi16(high01, high23);
  rows[0] = x0;
  rows[1] = x1;
  rows[2] = x2;
  rows[3] = x3;
  if constexpr (AreNeighbours) transpose_quarters(rows);
}

// Stores the dwords of an accumulator; only the first 8 of a half accumulator.
TPU_INLINE void store_accumulator(std::uint8_t* to, bool is_half, __m512i dwords) {
  if (is_half) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(dwords));
  } else {
    _mm512_storeu_si512(to, dwords);
  }
}

}  // namespace
}  // namespace tpuconvert::avx512
