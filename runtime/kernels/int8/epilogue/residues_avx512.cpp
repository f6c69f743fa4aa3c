#if defined(__x86_64__)

#include <immintrin.h>

#include "int8/epilogue/residues.h"

namespace tpuconvert::avx512 {
namespace {

inline __attribute__((always_inline)) __m512i next(__m512i residue, __m512i step, __m512i modulus) {
  const __m512i less = _mm512_sub_epi32(residue, step);
  // As an unsigned integer, a negative value is larger than its sum with the modulus, so that the minimum selects the
  // right one.
  return _mm512_min_epu32(less, _mm512_add_epi32(less, modulus));
}

}  // namespace

void find_extremes(const Residues& residues, int count, std::int32_t* least, std::int32_t* largest) {
  const __m512i modulus = _mm512_load_si512(residues.modulus), step = _mm512_load_si512(residues.step);
  __m512i residue = _mm512_load_si512(residues.first);
  __m512i low = _mm512_sub_epi32(modulus, _mm512_set1_epi32(1)), high = _mm512_setzero_si512();
  for (int i = 0; i < count; ++i) {
    low = _mm512_min_epi32(low, residue);
    high = _mm512_max_epi32(high, residue);
    residue = next(residue, step, modulus);
  }
  _mm512_storeu_si512(least, low);
  _mm512_storeu_si512(largest, high);
}

void find_first(const Residues& residues, int count, const std::int32_t* below, const std::int32_t* from,
                std::int32_t* index) {
  const __m512i modulus = _mm512_load_si512(residues.modulus), step = _mm512_load_si512(residues.step);
  const __m512i lower = _mm512_loadu_si512(below), upper = _mm512_loadu_si512(from);
  __m512i residue = _mm512_load_si512(residues.first), found = _mm512_set1_epi32(-1);
  __mmask16 searching = 0xffff;
  for (int i = 0; i < count && searching != 0; ++i) {
    const __mmask16 hits = static_cast<__mmask16>(_mm512_mask_cmplt_epi32_mask(searching, residue, lower) |
                                                  _mm512_mask_cmpge_epi32_mask(searching, residue, upper));
    found = _mm512_mask_mov_epi32(found, hits, _mm512_set1_epi32(i));
    searching = static_cast<__mmask16>(searching & ~hits);
    residue = next(residue, step, modulus);
  }
  _mm512_storeu_si512(index, found);
}

}  // namespace tpuconvert::avx512

#endif
