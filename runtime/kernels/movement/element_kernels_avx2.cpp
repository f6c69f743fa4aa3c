// 8 lanes at a time.
#include "movement/element_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace tpuconvert {
namespace {

inline __m256i lanes_at(const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
inline void put(std::int32_t* to, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value); }
inline __m256i bytes_at(const std::uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

struct Rescaling {
  __m256i multiplier, first, second, again, offset;

  static Rescaling at(const Lanes& lanes, int i) {
    return {lanes_at(lanes.parameters[kMultiplier] + i), lanes_at(lanes.parameters[kFirst] + i),
            lanes_at(lanes.parameters[kSecond] + i), lanes_at(lanes.parameters[kAgain] + i),
            lanes_at(lanes.parameters[kOffset] + i)};
  }
  static Rescaling of_all(const Lanes& lanes) {
    return {_mm256_set1_epi32(lanes.parameters[kMultiplier][0]), _mm256_set1_epi32(lanes.parameters[kFirst][0]),
            _mm256_set1_epi32(lanes.parameters[kSecond][0]), _mm256_set1_epi32(lanes.parameters[kAgain][0]),
            _mm256_set1_epi32(lanes.parameters[kOffset][0])};
  }
};

// Products of the even lanes and of the odd ones are shifted as 64 bits; each leaves 32 bits.
template <bool kHasSecond, bool kHasAgain>
inline __m256i rescaled(__m256i x, const Rescaling& p) {
  const __m256i one = _mm256_set1_epi32(1);
  __m256i even = _mm256_mul_epi32(x, p.multiplier);
  __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(p.multiplier, 32));
  even = _mm256_srlv_epi64(even, _mm256_blend_epi32(p.first, _mm256_setzero_si256(), 0xaa));
  odd = _mm256_srlv_epi64(odd, _mm256_srli_epi64(p.first, 32));
  __m256i h = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  if (kHasSecond) h = _mm256_srav_epi32(h, p.second);
  h = _mm256_srai_epi32(_mm256_add_epi32(h, one), 1);
  if (kHasAgain) {
    __m256i twice = _mm256_srav_epi32(_mm256_add_epi32(h, _mm256_srai_epi32(h, 31)), p.again);
    twice = _mm256_srai_epi32(_mm256_add_epi32(twice, one), 1);
    h = _mm256_blendv_epi8(twice, h, _mm256_srai_epi32(p.again, 31));
  }
  return _mm256_add_epi32(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain>
void rescale_all(const Lanes& lanes) {
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += 8)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain>(lanes_at(lanes.a + i), Rescaling::at(lanes, i)));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += 8)
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
inline __m256i pair_of(__m256i low, __m256i high) {
  return _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa);
}

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  const std::int32_t* const* p = lanes.parameters;
  __m256i factors = pair_of(_mm256_set1_epi32(p[0][0]), kHasB ? _mm256_set1_epi32(p[1][0]) : _mm256_setzero_si256());
  __m256i offset = _mm256_set1_epi32(p[2][0]);
  int i = 0;
  for (; i + 8 <= lanes.count; i += 8) {
    if (lanes.is_per_lane) {
      factors = pair_of(lanes_at(p[0] + i), kHasB ? lanes_at(p[1] + i) : _mm256_setzero_si256());
      offset = lanes_at(p[2] + i);
    }
    const __m256i x = kHasB ? pair_of(bytes_at(a + i), bytes_at(b + i)) : bytes_at(a + i);
    put(lanes.out + i, _mm256_add_epi32(_mm256_madd_epi16(x, factors), offset));
  }
  for (; i < lanes.count; ++i) {
    const int k = lanes.is_per_lane ? i : 0;
    lanes.out[i] = a[i] * p[0][k] + (kHasB ? b[i] * p[1][k] : 0) + p[2][k];
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, nullptr, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

// The table in 16 pieces of 16 entries: the low half of an index selects in each piece, the high half the piece.
void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  __m256i pieces[16];
  for (int piece = 0; piece < 16; ++piece)
    pieces[piece] =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * piece)));
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    __m256i result = _mm256_setzero_si256();
    // Saturating x - 16 * piece + 112 is 112..127 only inside the piece; a shuffle gives 0 where the top bit is set.
    for (int piece = 0; piece < 16; ++piece) {
      const __m256i place = _mm256_sub_epi8(x, _mm256_set1_epi8(static_cast<char>(16 * piece)));
      const __m256i index = _mm256_adds_epu8(place, _mm256_set1_epi8(0x70));
      result = _mm256_or_si256(result, _mm256_shuffle_epi8(pieces[piece], index));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), result);
  }
  for (; i < count; ++i) to[i] = table[from[i]];
}

#include "movement/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx2() { return kKernels; }

}  // namespace tpuconvert

#endif
