// Element-wise kernels for vectors of 16 lanes.
#include "int8/elementwise/element_kernels.h"

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

// Even and odd lanes are shifted separately as 64-bit products, because the products do not fit 32 bits.
template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
inline __m512i rescaled(__m512i x, const Rescaling& p) {
  const __m512i one = _mm512_set1_epi32(1);
  __m512i even = _mm512_mul_epi32(x, p.multiplier);
  __m512i odd = _mm512_mul_epi32(_mm512_srli_epi64(x, 32), _mm512_srli_epi64(p.multiplier, 32));
  if (kIsWide) {
    const __m512i half = _mm512_set1_epi64(1), bit = _mm512_sub_epi32(_mm512_add_epi32(p.first, p.second), one);
    even = _mm512_add_epi64(even, _mm512_sllv_epi64(half, _mm512_maskz_mov_epi32(0x5555, bit)));
    odd = _mm512_add_epi64(odd, _mm512_sllv_epi64(half, _mm512_srli_epi64(bit, 32)));
  }
  even = _mm512_srlv_epi64(even, _mm512_maskz_mov_epi32(0x5555, p.first));
  odd = _mm512_srlv_epi64(odd, _mm512_srli_epi64(p.first, 32));
  __m512i h = _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, _MM_PERM_CCAA);
  if (kHasSecond) h = _mm512_srav_epi32(h, p.second);
  if (!kIsWide) h = _mm512_srai_epi32(_mm512_add_epi32(h, one), 1);
  if (kHasAgain) {
    __m512i twice = _mm512_srav_epi32(_mm512_add_epi32(h, _mm512_srai_epi32(h, 31)), p.again);
    twice = _mm512_srai_epi32(_mm512_add_epi32(twice, one), 1);
    h = _mm512_mask_mov_epi32(twice, _mm512_movepi32_mask(p.again), h);
  }
  return _mm512_add_epi32(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
void rescale_all(const Lanes& lanes) {
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += 16)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(lanes_at(lanes.a + i), Rescaling::at(lanes, i)));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += 16)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(lanes_at(lanes.a + i), p));
  }
}

void rescale(const Lanes& lanes) {
  if (lanes.is_wide)
    return lanes.has_again ? rescale_all<true, true, true>(lanes) : rescale_all<true, false, true>(lanes);
  if (lanes.has_again)
    lanes.has_second ? rescale_all<true, true>(lanes) : rescale_all<false, true>(lanes);
  else
    lanes.has_second ? rescale_all<true, false>(lanes) : rescale_all<false, false>(lanes);
}

// Pairs of 16-bit values, one from each operand, to be multiplied by pairs of scales.
inline __m512i pair_of(__m512i low, __m512i high) { return _mm512_or_si512(low, _mm512_slli_epi32(high, 16)); }

inline __mmask16 mask_of(int count) { return count >= 16 ? 0xffff : static_cast<__mmask16>((1u << count) - 1); }

template <bool kHasB>
inline __m512i linear_at(const std::uint8_t* a, const std::uint8_t* b, int i, int count, __m512i factors,
                         __m512i offset) {
  const __mmask16 mask = mask_of(count - i);
  const __m512i x = kHasB ? pair_of(bytes_at(a + i, mask), bytes_at(b + i, mask)) : bytes_at(a + i, mask);
  return _mm512_add_epi32(_mm512_madd_epi16(x, factors), offset);
}

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  const std::int32_t* const* p = lanes.parameters;
  __m512i factors = _mm512_set1_epi32(p[0][0]), offset = _mm512_set1_epi32(p[1][0]);
  for (int i = 0; i < lanes.count; i += 16) {
    if (lanes.is_per_lane) {
      factors = lanes_at(p[0] + i);
      offset = lanes_at(p[1] + i);
    }
    put(lanes.out + i, linear_at<kHasB>(a, b, i, lanes.count, factors, offset));
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, nullptr, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

// Bytes are unpacked and packed within each 128-bit quarter of a register. The intermediate order does not matter,
// because all lanes have the same parameters.
template <bool kHasSecond, bool kHasAgain>
int residual_of_tensors(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                        const StoreLimits& limits, std::uint8_t* to, int count) {
  const __m512i factors = _mm512_set1_epi32(sum.parameters[0][0]), offset = _mm512_set1_epi32(sum.parameters[1][0]);
  Rescaling p = Rescaling::of_all(rescaling);
  p.offset = _mm512_add_epi32(p.offset, _mm512_set1_epi32(limits.bias));
  const __m512i low = _mm512_set1_epi8(static_cast<char>(limits.low + limits.bias));
  const __m512i high = _mm512_set1_epi8(static_cast<char>(limits.high + limits.bias));
  const __m512i zero = _mm512_setzero_si512();
  const auto result = [&](__m512i pairs) {
    return rescaled<kHasSecond, kHasAgain>(_mm512_add_epi32(_mm512_madd_epi16(pairs, factors), offset), p);
  };
  for (int i = 0; i < count; i += 64) {
    const int rest = count - i;
    const __mmask64 mask = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(mask, a + i), y = _mm512_maskz_loadu_epi8(mask, b + i);
    const __m512i x0 = _mm512_unpacklo_epi8(x, zero), x1 = _mm512_unpackhi_epi8(x, zero);
    const __m512i y0 = _mm512_unpacklo_epi8(y, zero), y1 = _mm512_unpackhi_epi8(y, zero);
    const __m512i words0 =
        _mm512_packs_epi32(result(_mm512_unpacklo_epi16(x0, y0)), result(_mm512_unpackhi_epi16(x0, y0)));
    const __m512i words1 =
        _mm512_packs_epi32(result(_mm512_unpacklo_epi16(x1, y1)), result(_mm512_unpackhi_epi16(x1, y1)));
    const __m512i bytes = _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(words0, words1), low), high);
    _mm512_mask_storeu_epi8(to + i, mask, bytes);
  }
  return count;
}

// Per-channel parameters require that lanes stay in memory order.
template <bool kHasSecond, bool kHasAgain>
void residual_of_lanes(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                       const StoreLimits& limits, std::uint8_t* to, int count) {
  __m512i factors = _mm512_set1_epi32(sum.parameters[0][0]), offset = _mm512_set1_epi32(sum.parameters[1][0]);
  Rescaling p = Rescaling::of_all(rescaling);
  const __m512i low = _mm512_set1_epi32(limits.low), high = _mm512_set1_epi32(limits.high);
  const __m512i bias = _mm512_set1_epi32(limits.bias);
  for (int i = 0; i < count; i += 16) {
    if (sum.is_per_lane) {
      factors = lanes_at(sum.parameters[0] + i);
      offset = lanes_at(sum.parameters[1] + i);
    }
    if (rescaling.is_per_lane) p = Rescaling::at(rescaling, i);
    const __m512i value = rescaled<kHasSecond, kHasAgain>(linear_at<true>(a, b, i, count, factors, offset), p);
    const __m512i limited = _mm512_min_epi32(_mm512_max_epi32(value, low), high);
    _mm_mask_storeu_epi8(to + i, mask_of(count - i), _mm512_cvtepi32_epi8(_mm512_add_epi32(limited, bias)));
  }
}

template <bool kHasSecond, bool kHasAgain>
void residual_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                 const StoreLimits& limits, std::uint8_t* to, int count) {
  if (sum.is_per_lane || rescaling.is_per_lane)
    residual_of_lanes<kHasSecond, kHasAgain>(a, b, sum, rescaling, limits, to, count);
  else
    residual_of_tensors<kHasSecond, kHasAgain>(a, b, sum, rescaling, limits, to, count);
}

void residual(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
              const StoreLimits& limits, std::uint8_t* to, int count) {
  if (rescaling.has_again)
    rescaling.has_second ? residual_of<true, true>(a, b, sum, rescaling, limits, to, count)
                         : residual_of<false, true>(a, b, sum, rescaling, limits, to, count);
  else
    rescaling.has_second ? residual_of<true, false>(a, b, sum, rescaling, limits, to, count)
                         : residual_of<false, false>(a, b, sum, rescaling, limits, to, count);
}

void residual_float(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const FloatRescale& p,
                    std::uint8_t* to, int count) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512i factors = _mm512_set1_epi32(sum.parameters[0][0]), offset = _mm512_set1_epi32(sum.parameters[1][0]);
  const __m512 high_part = _mm512_set1_ps(p.high_part), low_part = _mm512_set1_ps(p.low_part);
  const __m512i addend = _mm512_set1_epi16(p.addend), zero = _mm512_setzero_si512();
  const __m512i low = _mm512_set1_epi8(static_cast<char>(p.low)), high = _mm512_set1_epi8(static_cast<char>(p.high));
  const auto twice = [&](__m512i pairs) {
    const __m512 x = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_madd_epi16(pairs, factors), offset));
    return _mm512_cvt_roundps_epi32(_mm512_fmadd_round_ps(high_part, x, _mm512_mul_ps(low_part, x), kDown), kDown);
  };
  const auto words = [&](__m512i x, __m512i y) {
    const __m512i v = _mm512_packs_epi32(twice(_mm512_unpacklo_epi16(x, y)), twice(_mm512_unpackhi_epi16(x, y)));
    return _mm512_srai_epi16(_mm512_adds_epi16(v, addend), 1);
  };
  for (int i = 0; i < count; i += 64) {
    const int rest = count - i;
    const __mmask64 mask = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(mask, a + i), y = _mm512_maskz_loadu_epi8(mask, b + i);
    const __m512i words0 = words(_mm512_unpacklo_epi8(x, zero), _mm512_unpacklo_epi8(y, zero));
    const __m512i words1 = words(_mm512_unpackhi_epi8(x, zero), _mm512_unpackhi_epi8(y, zero));
    const __m512i bytes = _mm512_min_epu8(_mm512_max_epu8(_mm512_packus_epi16(words0, words1), low), high);
    _mm512_mask_storeu_epi8(to + i, mask, bytes);
  }
}

constexpr auto kResidualFloat = residual_float;

// A lookup table of 256 bytes in four registers.
struct ByteTable {
  __m512i pieces[4];

  static ByteTable at(const std::uint8_t* table) {
    return {{_mm512_loadu_si512(table), _mm512_loadu_si512(table + 64), _mm512_loadu_si512(table + 128),
             _mm512_loadu_si512(table + 192)}};
  }
  __m512i operator()(__m512i x, __mmask64 is_upper) const {
    const __m512i low = _mm512_permutex2var_epi8(pieces[0], x, pieces[1]);
    return _mm512_mask_mov_epi8(low, is_upper, _mm512_permutex2var_epi8(pieces[2], x, pieces[3]));
  }
};

// Looks up the four bytes of the entries separately and interleaves them. Interleaving works within 128-bit lanes, so
// the indices are first distributed to the four lanes in groups of four.
void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  alignas(64) static constexpr std::uint8_t kDealt[64] = {
      0,  1,  2,  3,  16, 17, 18, 19, 32, 33, 34, 35, 48, 49, 50, 51,  //
      4,  5,  6,  7,  20, 21, 22, 23, 36, 37, 38, 39, 52, 53, 54, 55,  //
      8,  9,  10, 11, 24, 25, 26, 27, 40, 41, 42, 43, 56, 57, 58, 59,  //
      12, 13, 14, 15, 28, 29, 30, 31, 44, 45, 46, 47, 60, 61, 62, 63};
  const __m512i order = _mm512_load_si512(kDealt);
  const ByteTable p0 = ByteTable::at(table.planes[0]), p1 = ByteTable::at(table.planes[1]);
  const ByteTable p2 = ByteTable::at(table.planes[2]), p3 = ByteTable::at(table.planes[3]);
  for (int i = 0; i < count; i += 64) {
    const int rest = count - i;
    const __mmask64 mask = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    const __m512i x = _mm512_permutexvar_epi8(order, _mm512_maskz_loadu_epi8(mask, from + i));
    const __mmask64 is_upper = _mm512_movepi8_mask(x);
    const __m512i b0 = p0(x, is_upper), b1 = p1(x, is_upper), b2 = p2(x, is_upper), b3 = p3(x, is_upper);
    const __m512i low0 = _mm512_unpacklo_epi8(b0, b1), low1 = _mm512_unpackhi_epi8(b0, b1);
    const __m512i high0 = _mm512_unpacklo_epi8(b2, b3), high1 = _mm512_unpackhi_epi8(b2, b3);
    const __m512i lanes[4] = {_mm512_unpacklo_epi16(low0, high0), _mm512_unpackhi_epi16(low0, high0),
                              _mm512_unpacklo_epi16(low1, high1), _mm512_unpackhi_epi16(low1, high1)};
    // Groups of 16 lanes after the last element are not stored.
    for (int group = 0; group < 4; ++group)
      if (16 * group < rest) put(out + i + 16 * group, lanes[group]);
  }
}

void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  const ByteTable bytes = ByteTable::at(table);
  for (std::int64_t i = 0; i < count; i += 64) {
    const std::int64_t rest = count - i;
    const __mmask64 mask = rest >= 64 ? ~__mmask64{0} : (__mmask64{1} << rest) - 1;
    const __m512i x = _mm512_maskz_loadu_epi8(mask, from + i);
    _mm512_mask_storeu_epi8(to + i, mask, bytes(x, _mm512_movepi8_mask(x)));
  }
}

// Source indices for the result bytes of 64 pixels. The first two planes form one table of 128 bytes, the third plane
// is a table of 64 bytes.
struct Interleaving {
  std::uint8_t first_two[3][64];
  std::uint8_t third[3][64];
  std::uint64_t is_third[3];

  constexpr Interleaving() : first_two(), third(), is_third() {
    for (int i = 0; i < 192; ++i) {
      first_two[i / 64][i % 64] = static_cast<std::uint8_t>(i / 3 + i % 3 % 2 * 64);
      third[i / 64][i % 64] = static_cast<std::uint8_t>(i / 3);
      if (i % 3 == 2) is_third[i / 64] |= std::uint64_t{1} << (i % 64);
    }
  }
};

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  static constexpr Interleaving kPlaces;
  int i = 0;
  for (; i + 64 <= count; i += 64) {
    const __m512i a = _mm512_loadu_si512(planes[0] + i), b = _mm512_loadu_si512(planes[1] + i);
    const __m512i c = _mm512_loadu_si512(planes[2] + i);
    for (int part = 0; part < 3; ++part) {
      const __m512i two = _mm512_permutex2var_epi8(a, _mm512_loadu_si512(kPlaces.first_two[part]), b);
      const __m512i all =
          _mm512_mask_permutexvar_epi8(two, kPlaces.is_third[part], _mm512_loadu_si512(kPlaces.third[part]), c);
      _mm512_storeu_si512(to + 3 * i + 64 * part, all);
    }
  }
  for (; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx512() { return kKernels; }

}  // namespace tpuconvert

#endif
