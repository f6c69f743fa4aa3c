// 16 lanes at a time.
#include "movement/element_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tpuconvert {
namespace {

inline __m512i lanes_at(const std::int32_t* from) { return _mm512_loadu_si512(from); }
inline void put(std::int32_t* to, __m512i value) { _mm512_storeu_si512(to, value); }
inline __m512i bytes_at(const std::uint8_t* from, __mmask16 mask) {
  return _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, from));
}

struct Rescaling {
  __m512i multiplier, first, second, again, offset;

  static Rescaling at(const Lanes& lanes, int i) {
    return {lanes_at(lanes.parameters[kMultiplier] + i), lanes_at(lanes.parameters[kFirst] + i),
            lanes_at(lanes.parameters[kSecond] + i), lanes_at(lanes.parameters[kAgain] + i),
            lanes_at(lanes.parameters[kOffset] + i)};
  }
  static Rescaling of_all(const Lanes& lanes) {
    return {_mm512_set1_epi32(lanes.parameters[kMultiplier][0]), _mm512_set1_epi32(lanes.parameters[kFirst][0]),
            _mm512_set1_epi32(lanes.parameters[kSecond][0]), _mm512_set1_epi32(lanes.parameters[kAgain][0]),
            _mm512_set1_epi32(lanes.parameters[kOffset][0])};
  }
};

// Products of the even lanes and of the odd ones are shifted as 64 bits; each leaves 32 bits.
template <bool kHasSecond, bool kHasAgain>
inline __m512i rescaled(__m512i x, const Rescaling& p) {
  const __m512i one = _mm512_set1_epi32(1);
  __m512i even = _mm512_mul_epi32(x, p.multiplier);
  __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(p.multiplier, 32));
  even = _mm512_srlv_epi64(even, _mm512_maskz_mov_epi32(0x5555, p.first));
  odd = _mm512_srlv_epi64(odd, _mm512_srli_epi64(p.first, 32));
  __m512i h = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
  if (kHasSecond) h = _mm512_srav_epi32(h, p.second);
  h = _mm512_srai_epi32(_mm512_add_epi32(h, one), 1);
  if (kHasAgain) {
    __m512i twice = _mm512_srav_epi32(_mm512_add_epi32(h, _mm512_srai_epi32(h, 31)), p.again);
    twice = _mm512_srai_epi32(_mm512_add_epi32(twice, one), 1);
    h = _mm512_mask_mov_epi32(twice, _mm512_movepi32_mask(p.again), h);
  }
  return _mm512_add_epi32(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain>
void rescale_all(const Lanes& lanes) {
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += 16)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain>(lanes_at(lanes.a + i), Rescaling::at(lanes, i)));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += 16)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain>(lanes_at(lanes.a + i), p));
  }
}

void rescale(const Lanes& lanes) {
  if (lanes.has_again)
    lanes.has_second ? rescale_all<true, true>(lanes) : rescale_all<false, true>(lanes);
  else
    lanes.has_second ? rescale_all<true, false>(lanes) : rescale_all<false, false>(lanes);
}

// Pairs of 16 bits, one from each operand, times pairs of factors.
inline __m512i pair_of(__m512i low, __m512i high) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
}

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  const std::int32_t* const* p = lanes.parameters;
  __m512i factors = pair_of(_mm512_set1_epi32(p[0][0]), kHasB ? _mm512_set1_epi32(p[1][0]) : _mm512_setzero_si512());
  __m512i offset = _mm512_set1_epi32(p[2][0]);
  for (int i = 0; i < lanes.count; i += 16) {
    const int rest = lanes.count - i;
    const __mmask16 mask = rest >= 16 ? 0xffff : static_cast<__mmask16>((1u << rest) - 1);
    if (lanes.is_per_lane) {
      factors = pair_of(lanes_at(p[0] + i), kHasB ? lanes_at(p[1] + i) : _mm512_setzero_si512());
      offset = lanes_at(p[2] + i);
    }
    const __m512i x = kHasB ? pair_of(bytes_at(a + i, mask), bytes_at(b + i, mask)) : bytes_at(a + i, mask);
    put(lanes.out + i, _mm512_add_epi32(_mm512_madd_epi16(x, factors), offset));
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, nullptr, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  const __m512i t0 = _mm512_loadu_si512(table), t1 = _mm512_loadu_si512(table + 64);
  const __m512i t2 = _mm512_loadu_si512(table + 128), t3 = _mm512_loadu_si512(table + 192);
  for (std::int64_t i = 0; i < count; i += 64) {
    const std::int64_t rest = count - i;
    const __mmask64 mask = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(mask, from + i);
    const __m512i low = _mm512_permutex2var_epi8(t0, x, t1), high = _mm512_permutex2var_epi8(t2, x, t3);
    _mm512_mask_storeu_epi8(to + i, mask, _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(x), high));
  }
}

#include "movement/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx512() { return kKernels; }

}  // namespace tpuconvert

#endif
