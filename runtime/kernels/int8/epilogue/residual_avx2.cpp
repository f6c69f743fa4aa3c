// Residual add for AVX2.
#if defined(__x86_64__)

#include <immintrin.h>

#include "int8/epilogue/residual_rows.h"

namespace tpuconvert {

namespace {

// Adds 32 bytes, with the parameters of half a block.
inline __attribute__((always_inline)) void add_half(std::uint8_t* bytes, const std::uint8_t* others,
                                                    const std::int32_t* factors, const std::int32_t* offsets,
                                                    const ResidualRows& work) {
  const auto load = [](const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); };
  const __m256i zero = _mm256_setzero_si256(), x = load(bytes), y = load(others);
  const __m256i x0 = _mm256_unpacklo_epi8(x, zero), x1 = _mm256_unpackhi_epi8(x, zero);
  const __m256i y0 = _mm256_unpacklo_epi8(y, zero), y1 = _mm256_unpackhi_epi8(y, zero);
  const __m256i pairs[4] = {_mm256_unpacklo_epi16(x0, y0), _mm256_unpackhi_epi16(x0, y0),
                            _mm256_unpacklo_epi16(x1, y1), _mm256_unpackhi_epi16(x1, y1)};
  const __m128i shift = _mm_cvtsi32_si128(work.shift);
  __m256i sums[4];
  for (int i = 0; i < 4; ++i) {
    const __m256i sum = _mm256_madd_epi16(pairs[i], load(factors + 8 * i));
    sums[i] = _mm256_sra_epi32(_mm256_add_epi32(sum, load(offsets + 8 * i)), shift);
  }
  const __m256i result =
      _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
  const __m256i low = _mm256_set1_epi8(static_cast<char>(work.low));
  const __m256i high = _mm256_set1_epi8(static_cast<char>(work.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), _mm256_min_epu8(_mm256_max_epu8(result, low), high));
}

inline void copy(const std::uint8_t* from, std::uint8_t* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

}  // namespace

void residual_avx2(const ResidualRows& work) {
  const std::size_t halves = 2 * static_cast<std::size_t>(work.blocks);
  for (int row = 0; row < work.rows; ++row) {
    std::uint8_t* bytes = work.bytes[row] + work.offset;
    const std::uint8_t* others = work.others[row] + work.offset;
    std::size_t half = 0;
    for (std::size_t at = 0; at < work.count; at += 32) {
      const std::int32_t *factors = work.factors + 32 * half, *offsets = work.offsets + 32 * half;
      const std::size_t rest = work.count - at;
      if (rest >= 32) {
        add_half(bytes + at, others + at, factors, offsets, work);
      } else {  // copied, so that nothing is written after the row
        std::uint8_t last[32] = {}, other[32] = {};
        copy(bytes + at, last, rest);
        copy(others + at, other, rest);
        add_half(last, other, factors, offsets, work);
        copy(last, bytes + at, rest);
      }
      half = half + 1 == halves ? 0 : half + 1;
    }
  }
}

}  // namespace tpuconvert

#endif
