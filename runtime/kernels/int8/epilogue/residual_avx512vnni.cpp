// Residual add for AVX512-VNNI.
#if defined(__x86_64__)

#include <immintrin.h>

#include "int8/epilogue/residual_rows.h"

namespace tpuconvert {

namespace {

struct Parameters {
  __m512i factors[4], offsets[4];

  static inline __attribute__((always_inline)) Parameters at(const ResidualRows& work, std::size_t block) {
    Parameters p;
    for (int i = 0; i < 4; ++i) {
      p.factors[i] = _mm512_loadu_si512(work.factors + block * kResidualBlock + 16 * i);
      p.offsets[i] = _mm512_loadu_si512(work.offsets + block * kResidualBlock + 16 * i);
    }
    return p;
  }
};

struct Limits {
  __m128i shift;
  __m512i low, high;
};

inline __attribute__((always_inline)) void add_block(std::uint8_t* bytes, const std::uint8_t* others, __mmask64 mask,
                                                     const Parameters& p, const Limits& limits) {
  const __m512i zero = _mm512_setzero_si512();
  const __m512i x = _mm512_maskz_loadu_epi8(mask, bytes), y = _mm512_maskz_loadu_epi8(mask, others);
  const __m512i x0 = _mm512_unpacklo_epi8(x, zero), x1 = _mm512_unpackhi_epi8(x, zero);
  const __m512i y0 = _mm512_unpacklo_epi8(y, zero), y1 = _mm512_unpackhi_epi8(y, zero);
  const __m512i pairs[4] = {_mm512_unpacklo_epi16(x0, y0), _mm512_unpackhi_epi16(x0, y0),
                            _mm512_unpacklo_epi16(x1, y1), _mm512_unpackhi_epi16(x1, y1)};
  __m512i sums[4];
  for (int i = 0; i < 4; ++i)
    sums[i] = _mm512_sra_epi32(_mm512_dpwssd_epi32(p.offsets[i], pairs[i], p.factors[i]), limits.shift);
  // Saturation is monotone, so that values can be clamped after it.
  const __m512i result =
      _mm512_packus_epi16(_mm512_packs_epi32(sums[0], sums[1]), _mm512_packs_epi32(sums[2], sums[3]));
  _mm512_mask_storeu_epi8(bytes, mask, _mm512_min_epu8(_mm512_max_epu8(result, limits.low), limits.high));
}

}  // namespace

void residual_avx512(const ResidualRows& work) {
  const Limits limits{_mm_cvtsi32_si128(work.shift), _mm512_set1_epi8(static_cast<char>(work.low)),
                      _mm512_set1_epi8(static_cast<char>(work.high))};
  const auto mask_of = [&](std::size_t at) {
    const std::size_t rest = work.count - at;
    return rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
  };
  if (work.blocks == 1) {
    const Parameters p = Parameters::at(work, 0);
    for (int row = 0; row < work.rows; ++row) {
      std::uint8_t* bytes = work.bytes[row] + work.offset;
      const std::uint8_t* others = work.others[row] + work.offset;
      for (std::size_t at = 0; at < work.count; at += 64) add_block(bytes + at, others + at, mask_of(at), p, limits);
    }
    return;
  }
  for (int row = 0; row < work.rows; ++row) {
    std::uint8_t* bytes = work.bytes[row] + work.offset;
    const std::uint8_t* others = work.others[row] + work.offset;
    std::size_t block = 0;
    for (std::size_t at = 0; at < work.count; at += 64) {
      add_block(bytes + at, others + at, mask_of(at), Parameters::at(work, block), limits);
      block = block + 1 == static_cast<std::size_t>(work.blocks) ? 0 : block + 1;
    }
  }
}

}  // namespace tpuconvert

#endif
