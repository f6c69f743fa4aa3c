// Element-wise kernels for vectors of 8 lanes.
#include "int8/elementwise/element_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

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

// Even and odd lanes are shifted separately as 64-bit products, because the products do not fit 32 bits.
template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
inline __m256i rescaled(__m256i x, const Rescaling& p) {
  const __m256i one = _mm256_set1_epi32(1);
  __m256i even = _mm256_mul_epi32(x, p.multiplier);
  __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(p.multiplier, 32));
  if (kIsWide) {
    const __m256i half = _mm256_set1_epi64x(1), bit = _mm256_sub_epi32(_mm256_add_epi32(p.first, p.second), one);
    even = _mm256_add_epi64(even, _mm256_sllv_epi64(half, _mm256_blend_epi32(bit, _mm256_setzero_si256(), 0xaa)));
    odd = _mm256_add_epi64(odd, _mm256_sllv_epi64(half, _mm256_srli_epi64(bit, 32)));
  }
  even = _mm256_srlv_epi64(even, _mm256_blend_epi32(p.first, _mm256_setzero_si256(), 0xaa));
  odd = _mm256_srlv_epi64(odd, _mm256_srli_epi64(p.first, 32));
  __m256i h = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
  if (kHasSecond) h = _mm256_srav_epi32(h, p.second);
  if (!kIsWide) h = _mm256_srai_epi32(_mm256_add_epi32(h, one), 1);
  if (kHasAgain) {
    __m256i twice = _mm256_srav_epi32(_mm256_add_epi32(h, _mm256_srai_epi32(h, 31)), p.again);
    twice = _mm256_srai_epi32(_mm256_add_epi32(twice, one), 1);
    h = _mm256_blendv_epi8(twice, h, _mm256_srai_epi32(p.again, 31));
  }
  return _mm256_add_epi32(h, p.offset);
}

template <bool kHasSecond, bool kHasAgain, bool kIsWide = false>
void rescale_all(const Lanes& lanes) {
  if (lanes.is_per_lane) {
    for (int i = 0; i < lanes.count; i += 8)
      put(lanes.out + i, rescaled<kHasSecond, kHasAgain, kIsWide>(lanes_at(lanes.a + i), Rescaling::at(lanes, i)));
  } else {
    const Rescaling p = Rescaling::of_all(lanes);
    for (int i = 0; i < lanes.count; i += 8)
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
inline __m256i pair_of(__m256i low, __m256i high) { return _mm256_or_si256(low, _mm256_slli_epi32(high, 16)); }

template <bool kHasB>
void linear_of(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) {
  const std::int32_t* const* p = lanes.parameters;
  __m256i factors = _mm256_set1_epi32(p[0][0]), offset = _mm256_set1_epi32(p[1][0]);
  int i = 0;
  for (; i + 8 <= lanes.count; i += 8) {
    if (lanes.is_per_lane) {
      factors = lanes_at(p[0] + i);
      offset = lanes_at(p[1] + i);
    }
    const __m256i x = kHasB ? pair_of(bytes_at(a + i), bytes_at(b + i)) : bytes_at(a + i);
    put(lanes.out + i, _mm256_add_epi32(_mm256_madd_epi16(x, factors), offset));
  }
  for (; i < lanes.count; ++i) {
    const std::int32_t pair = p[0][lanes.is_per_lane ? i : 0];
    const std::int32_t from_b = kHasB ? b[i] * (pair >> 16) : 0;
    lanes.out[i] = wrapping_sum(a[i] * static_cast<std::int16_t>(pair) + from_b, p[1][lanes.is_per_lane ? i : 0]);
  }
}

void linear(const std::uint8_t* a, const Lanes& lanes) { linear_of<false>(a, nullptr, lanes); }
void linear_sum(const std::uint8_t* a, const std::uint8_t* b, const Lanes& lanes) { linear_of<true>(a, b, lanes); }

// Bytes are unpacked and packed within each 128-bit half of a register. The intermediate order does not matter, because
// all lanes have the same parameters.
template <bool kHasSecond, bool kHasAgain>
int residual_of_tensors(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
                        const StoreLimits& limits, std::uint8_t* to, int count) {
  const __m256i factors = _mm256_set1_epi32(sum.parameters[0][0]), offset = _mm256_set1_epi32(sum.parameters[1][0]);
  Rescaling p = Rescaling::of_all(rescaling);
  p.offset = _mm256_add_epi32(p.offset, _mm256_set1_epi32(limits.bias));
  const __m256i low = _mm256_set1_epi8(static_cast<char>(limits.low + limits.bias));
  const __m256i high = _mm256_set1_epi8(static_cast<char>(limits.high + limits.bias));
  const __m256i zero = _mm256_setzero_si256();
  const auto result = [&](__m256i pairs) {
    return rescaled<kHasSecond, kHasAgain>(_mm256_add_epi32(_mm256_madd_epi16(pairs, factors), offset), p);
  };
  int i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b + i));
    const __m256i x0 = _mm256_unpacklo_epi8(x, zero), x1 = _mm256_unpackhi_epi8(x, zero);
    const __m256i y0 = _mm256_unpacklo_epi8(y, zero), y1 = _mm256_unpackhi_epi8(y, zero);
    const __m256i words0 =
        _mm256_packs_epi32(result(_mm256_unpacklo_epi16(x0, y0)), result(_mm256_unpackhi_epi16(x0, y0)));
    const __m256i words1 =
        _mm256_packs_epi32(result(_mm256_unpacklo_epi16(x1, y1)), result(_mm256_unpackhi_epi16(x1, y1)));
    const __m256i bytes = _mm256_min_epu8(_mm256_max_epu8(_mm256_packus_epi16(words0, words1), low), high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), bytes);
  }
  return i;
}

#include "int8/elementwise/residual_by_block.h"

void residual(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const Lanes& rescaling,
              const StoreLimits& limits, std::uint8_t* to, int count) {
  int done = 0;
  if (!sum.is_per_lane && !rescaling.is_per_lane) {
    if (rescaling.has_again)
      done = rescaling.has_second ? residual_of_tensors<true, true>(a, b, sum, rescaling, limits, to, count)
                                  : residual_of_tensors<false, true>(a, b, sum, rescaling, limits, to, count);
    else
      done = rescaling.has_second ? residual_of_tensors<true, false>(a, b, sum, rescaling, limits, to, count)
                                  : residual_of_tensors<false, false>(a, b, sum, rescaling, limits, to, count);
  }
  residual_by_blocks(a, b, sum, rescaling, limits, to, done, count);
}

// Sets the float32 rounding mode and returns the previous one. The memory barrier keeps the compiler from moving loads,
// and arithmetic on loaded values, across the change.
inline unsigned round_as(unsigned mode) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(mode);
  __asm__ volatile("" ::: "memory");
  return before;
}

// All operations round towards minus infinity, which the proof also allows for the inner product. Elements after the
// last full register are copied to a buffer of one register.
void residual_float(const std::uint8_t* a, const std::uint8_t* b, const Lanes& sum, const FloatRescale& p,
                    std::uint8_t* to, int count) {
  const unsigned before = round_as((_mm_getcsr() & ~0x6000u) | 0x2000u);
  const __m256i factors = _mm256_set1_epi32(sum.parameters[0][0]), offset = _mm256_set1_epi32(sum.parameters[1][0]);
  const __m256 high_part = _mm256_set1_ps(p.high_part), low_part = _mm256_set1_ps(p.low_part);
  const __m256i addend = _mm256_set1_epi16(p.addend), zero = _mm256_setzero_si256();
  const __m256i low = _mm256_set1_epi8(static_cast<char>(p.low)), high = _mm256_set1_epi8(static_cast<char>(p.high));
  const auto twice = [&](__m256i pairs) {
    const __m256 x = _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(pairs, factors), offset));
    return _mm256_cvtps_epi32(_mm256_fmadd_ps(high_part, x, _mm256_mul_ps(low_part, x)));
  };
  const auto words = [&](__m256i x, __m256i y) {
    const __m256i v = _mm256_packs_epi32(twice(_mm256_unpacklo_epi16(x, y)), twice(_mm256_unpackhi_epi16(x, y)));
    return _mm256_srai_epi16(_mm256_adds_epi16(v, addend), 1);
  };
  const auto result = [&](const std::uint8_t* from_a, const std::uint8_t* from_b) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from_a));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from_b));
    const __m256i words0 = words(_mm256_unpacklo_epi8(x, zero), _mm256_unpacklo_epi8(y, zero));
    const __m256i words1 = words(_mm256_unpackhi_epi8(x, zero), _mm256_unpackhi_epi8(y, zero));
    return _mm256_min_epu8(_mm256_max_epu8(_mm256_packus_epi16(words0, words1), low), high);
  };
  int i = 0;
  for (; i + 32 <= count; i += 32) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), result(a + i, b + i));
  if (i < count) {
    std::uint8_t last_a[32] = {}, last_b[32] = {}, last[32];
    __builtin_memcpy(last_a, a + i, static_cast<std::size_t>(count - i));
    __builtin_memcpy(last_b, b + i, static_cast<std::size_t>(count - i));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(last), result(last_a, last_b));
    __builtin_memcpy(to + i, last, static_cast<std::size_t>(count - i));
  }
  __asm__ volatile("" ::: "memory");
  round_as(before);
}

constexpr auto kResidualFloat = residual_float;

// Loads one entry at a time: gather instructions are slower on most processors.
void look_up_wide(const std::uint8_t* from, const WideTable& table, std::int32_t* out, int count) {
  for (int i = 0; i < count; ++i) {
    std::int32_t value = table.entries[from[i]];
    __asm__("" : "+r"(value));
    out[i] = value;
  }
}

// Divides the table into 16 pieces of 16 entries. The upper half of an index selects the piece, the lower half the
// entry.
void look_up(const std::uint8_t* from, std::uint8_t* to, std::int64_t count, const std::uint8_t* table) {
  __m256i pieces[16];
  for (int piece = 0; piece < 16; ++piece)
    pieces[piece] =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 16 * piece)));
  std::int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    __m256i result = _mm256_setzero_si256();
    // The saturating sum x - 16 * piece + 112 has a clear top bit (112..127) only if x is in the piece. A shuffle
    // returns 0 for an index with a set top bit.
    for (int piece = 0; piece < 16; ++piece) {
      const __m256i place = _mm256_sub_epi8(x, _mm256_set1_epi8(static_cast<char>(16 * piece)));
      const __m256i index = _mm256_adds_epu8(place, _mm256_set1_epi8(0x70));
      result = _mm256_or_si256(result, _mm256_shuffle_epi8(pieces[piece], index));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), result);
  }
  for (; i < count; ++i) to[i] = table[from[i]];
}

void interleave3(const std::uint8_t* const* planes, std::uint8_t* to, int count) {
  // Index into the plane for each of 48 result bytes; -1 gives 0.
  const __m128i a0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
  const __m128i b0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
  const __m128i c0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
  const __m128i a1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
  const __m128i b1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
  const __m128i c1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
  const __m128i a2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
  const __m128i b2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
  const __m128i c2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
  int i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes[0] + i));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes[1] + i));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes[2] + i));
    auto* target = reinterpret_cast<__m128i*>(to + 3 * i);
    const auto joined = [&](__m128i from_a, __m128i from_b, __m128i from_c) {
      return _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(a, from_a), _mm_shuffle_epi8(b, from_b)),
                          _mm_shuffle_epi8(c, from_c));
    };
    _mm_storeu_si128(target, joined(a0, b0, c0));
    _mm_storeu_si128(target + 1, joined(a1, b1, c1));
    _mm_storeu_si128(target + 2, joined(a2, b2, c2));
  }
  for (; i < count; ++i)
    for (int plane = 0; plane < 3; ++plane) to[3 * i + plane] = planes[plane][i];
}

#include "int8/elementwise/element_loops.h"

}  // namespace

const ElementKernels& element_kernels_avx2() { return kKernels; }

}  // namespace tpuconvert

#endif
