#if defined(__x86_64__)

#include "int8/conv/even_rows.h"

#include <immintrin.h>

namespace tpuconvert::avx512 {
namespace {

bool are_even(const std::uint8_t* const* inputs, int rows) {
  if (rows < 3) return true;
  const __m512i step = _mm512_set1_epi64(inputs[1] - inputs[0]);
  const auto differs = [&](int first) {
    const __m512i here = _mm512_loadu_si512(inputs + first), next = _mm512_loadu_si512(inputs + first + 1);
    return static_cast<unsigned>(_mm512_cmpneq_epi64_mask(_mm512_sub_epi64(next, here), step));
  };
  const unsigned different = differs(0) | (rows > 9 ? differs(8) << 8 : 0u);
  return (different & ((1u << (rows - 1)) - 1)) == 0;
}

void copy_row(const std::uint8_t* from, std::size_t bytes, std::uint8_t* to) {
  std::size_t at = 0;
  for (; at + 64 <= bytes; at += 64) _mm512_store_si512(to + at, _mm512_loadu_si512(from + at));
  if (at < bytes) {
    const __mmask64 rest = ~std::uint64_t{0} >> (64 - (bytes - at));
    _mm512_store_si512(to + at, _mm512_maskz_loadu_epi8(rest, from + at));
  }
}

}  // namespace

void make_rows_even(const std::uint8_t** inputs, std::size_t segments, int rows, std::size_t bytes, std::uint8_t* copies) {
  for (std::size_t segment = 0; segment < segments; ++segment, inputs += rows) {
    if (are_even(inputs, rows)) continue;
    for (int row = 0; row < rows; ++row, copies += copied_row_bytes(bytes)) {
      copy_row(inputs[row], bytes, copies);
      inputs[row] = copies;
    }
  }
}

void place_results(const Walk& walk, int width, std::uint8_t* unused, int first, TileAddresses* to) {
  const __mmask16 stored = _mm512_cmplt_epi32_mask(_mm512_load_si512(walk.x), _mm512_set1_epi32(width));
  const __m512i other = _mm512_set1_epi64(reinterpret_cast<std::intptr_t>(unused));
  for (int lane = 0; lane < kWalkLanes; lane += 8) {
    const __mmask8 half = static_cast<__mmask8>(stored >> lane);
    _mm512_storeu_si512(to->outputs + first + lane, _mm512_mask_blend_epi64(half, other, _mm512_load_si512(walk.output + lane)));
    _mm512_storeu_si512(to->others + first + lane, _mm512_mask_blend_epi64(half, other, _mm512_load_si512(walk.other + lane)));
  }
}

}  // namespace tpuconvert::avx512

#endif
