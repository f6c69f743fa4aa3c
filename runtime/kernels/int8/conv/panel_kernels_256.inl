// The 256-bit kernels, compiled once per encoding. The including file defines
//   PANELS_NAMESPACE  a unique namespace
//   PANELS_BYTE_DOT   if available, the dot product instruction with operands "%2, %1, %0": adds four unsigned bytes of
//                     %1 times four signed bytes of %2 to %0
//   PANELS_REGISTER   the constraint of a vector register
#include <immintrin.h>

#include <cstring>

#include "int8/conv/panel_kernels.h"

#define PANELS_INLINED __attribute__((always_inline))
#define PANELS_INLINE inline PANELS_INLINED

namespace tpuconvert::panels::PANELS_NAMESPACE {
namespace {

// Loops with a compile-time index. Otherwise, GCC 12 keeps arrays of registers in memory.
template <int Value>
struct Index {
  constexpr operator int() const { return Value; }
};

template <int Count, int From = 0, typename Body>
PANELS_INLINE void unrolled(Body&& body) {
  if constexpr (From < Count) {
    body(Index<From>{});
    unrolled<Count, From + 1>(body);
  }
}

PANELS_INLINE __m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }

PANELS_INLINE void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

// --- sums of products ------------------------------------------------------------------------------------------------

// Sums wrap modulo 2^32, so that the order of additions does not matter; complete sums fit 32 bits, which is checked
// when the step is made. Tied assembler operands, because GCC 12 copies and spills accumulators around the builtins.
PANELS_INLINE void accumulate(__m256i& sum, __m256i x, __m256i w) {
#if defined(PANELS_BYTE_DOT)
  asm(PANELS_BYTE_DOT " %2, %1, %0" : "+" PANELS_REGISTER(sum) : PANELS_REGISTER(x), PANELS_REGISTER(w));
#else
  __m256i product;
  asm("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0"
      : "+" PANELS_REGISTER(sum), "=&" PANELS_REGISTER(product)
      : PANELS_REGISTER(x), PANELS_REGISTER(w));
#endif
}

template <int Rows>
void multiply(const std::uint8_t* const* pixels, std::ptrdiff_t taps, std::ptrdiff_t tap_bytes, std::ptrdiff_t offset,
              const std::uint8_t* weights, std::int32_t* sums) {
  __m256i sum[Rows][2];
  unrolled<Rows>([&](auto row) PANELS_INLINED { sum[row][0] = sum[row][1] = _mm256_setzero_si256(); });
  for (std::ptrdiff_t tap = 0; tap < taps; ++tap, pixels += Rows) {
    const std::uint8_t* end[Rows];
    unrolled<Rows>([&](auto row) PANELS_INLINED {
      end[row] = pixels[row] + offset + tap_bytes;
      asm("" : "+r"(end[row]));  // one register per row, instead of an addition in every step
    });
    std::ptrdiff_t at = -tap_bytes;
    do {
      const __m256i w0 = load(weights), w1 = load(weights + 32);
      weights += kStepBytes;
      unrolled<Rows>([&](auto row) PANELS_INLINED {
        __m256i x;
        // Volatile, because GCC otherwise broadcasts all rows first and spills the accumulators.
        asm volatile("vpbroadcastd %1, %0"
                     : "=" PANELS_REGISTER(x)
                     : "m"(*reinterpret_cast<const std::int32_t*>(end[row] + at)));
        accumulate(sum[row][0], x, w0);
        accumulate(sum[row][1], x, w1);
      });
      at += 4;
    } while (at != 0);
  }
  unrolled<Rows>([&](auto row) PANELS_INLINED {
    store(sums + row * kColumns, sum[row][0]);
    store(sums + row * kColumns + 8, sum[row][1]);
  });
}

// Widens 16 unsigned bytes to words.
PANELS_INLINE __m256i load_words(const void* from) {
  return _mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(from)));
}

void depthwise_words(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                     const std::uint8_t* weights, std::int32_t* sums) {
  for (int row = 0; row < rows; ++row, sums += kColumns) {
    __m256i sum0 = _mm256_setzero_si256(), sum1 = sum0;
    const std::uint8_t* w = weights;
    const std::uint8_t* const* pixel = pixels + row;
    for (std::ptrdiff_t tap = 0; tap < taps; tap += 2, w += 64, pixel += 2 * rows) {
      const __m256i a = load_words(pixel[0] + offset), b = load_words(pixel[rows] + offset);
      // Panel order: channels 0-3 and 8-11 in sum0, 4-7 and 12-15 in sum1.
      sum0 = _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), load(w)));
      sum1 = _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), load(w + 32)));
    }
    store(sums, sum0);
    store(sums + 8, sum1);
  }
}

#if defined(PANELS_BYTE_DOT)
void depthwise_bytes(const std::uint8_t* const* pixels, int rows, std::ptrdiff_t taps, std::ptrdiff_t offset,
                     const std::uint8_t* weights, std::int32_t* sums) {
  for (int row = 0; row < rows; ++row, sums += kColumns) {
    __m256i sum0 = _mm256_setzero_si256(), sum1 = sum0;
    const std::uint8_t* w = weights;
    const std::uint8_t* const* pixel = pixels + row;
    for (std::ptrdiff_t tap = 0; tap < taps; tap += 4, w += 64, pixel += 4 * rows) {
      const __m256i a = load_words(pixel[0] + offset), b = load_words(pixel[rows] + offset);
      const __m256i c = load_words(pixel[2 * rows] + offset), d = load_words(pixel[3 * rows] + offset);
      const __m256i lower = _mm256_or_si256(a, _mm256_slli_epi16(b, 8));
      const __m256i upper = _mm256_or_si256(c, _mm256_slli_epi16(d, 8));
      accumulate(sum0, _mm256_unpacklo_epi16(lower, upper), load(w));
      accumulate(sum1, _mm256_unpackhi_epi16(lower, upper), load(w + 32));
    }
    store(sums, sum0);
    store(sums + 8, sum1);
  }
}
#endif

// --- from sums to stored results -------------------------------------------------------------------------------------

// floor(x * high + (x * low + kink)). Both operations round down, because the caller has set this rounding mode.
template <bool IsKinked>
PANELS_INLINE __m256i float_requant(__m256i sum, const FloatParameters& parameters, int half) {
  const __m256 x = _mm256_cvtepi32_ps(sum);
  const __m256 high = _mm256_loadu_ps(parameters.high_part + 8 * half);
  const __m256 low = _mm256_loadu_ps(parameters.low_part + 8 * half);
  __m256 inner;
  if constexpr (IsKinked) {
    const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
    inner = _mm256_fmadd_ps(x, low, _mm256_or_ps(sign, _mm256_loadu_ps(parameters.kink + 8 * half)));
  } else {
    inner = _mm256_mul_ps(x, low);
  }
  return _mm256_cvtps_epi32(_mm256_fmadd_ps(x, high, inner));
}

// (x * multiplier + 2^(r - 1)) >> r for 32 <= r <= 62: takes the upper halves of the products, then shifts by r - 32
// bits.
PANELS_INLINE __m256i one_rounding(__m256i x, const FixedParameters& parameters, int half) {
  const __m256i m = load(parameters.multiplier + 8 * half);
  const __m256i even =
      _mm256_add_epi64(_mm256_mul_epi32(x, m), load(parameters.half_wide + 8 * half));
  const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(m, 32)),
                                       load(parameters.half_wide + 8 * half + 4));
  const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
  return _mm256_srav_epi32(high, load(parameters.shift + 8 * half));
}

// Rounds half up by 31 bits, then half away from zero. plan_panel_epilogue has proved that no step overflows 32 bits.
PANELS_INLINE __m256i two_roundings(__m256i x, const FixedParameters& parameters, int half) {
  const __m256i m = load(parameters.multiplier + 8 * half);
  const __m256i first_half = _mm256_set1_epi64x(std::int64_t{1} << 30);
  const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(x, m), first_half);
  const __m256i odd =
      _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(x, 32), _mm256_srli_epi64(m, 32)), first_half);
  const __m256i high = _mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xAA);
  const __m256i negative = _mm256_and_si256(_mm256_srai_epi32(high, 31), load(parameters.sign_mask + 8 * half));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(high, negative), load(parameters.half + 8 * half));
  return _mm256_srav_epi32(rounded, load(parameters.shift + 8 * half));
}

// Rounds half up by first_shift bits and clamps to narrow_low..narrow_high.
PANELS_INLINE __m256i first_stage(__m256i x, const CommonParameters& common) {
  if (common.first_shift > 0) {
    // A shift by 31 bits leaves only the sign, which rounds to 0, the result of any larger shift.
    const int bits = common.first_shift > 32 ? 31 : common.first_shift - 1;
    const __m256i doubled = _mm256_sra_epi32(x, _mm_cvtsi32_si128(bits));
    x = _mm256_add_epi32(_mm256_srai_epi32(doubled, 1), _mm256_and_si256(doubled, _mm256_set1_epi32(1)));
  }
  return _mm256_min_epi32(_mm256_max_epi32(x, _mm256_set1_epi32(common.narrow_low)),
                          _mm256_set1_epi32(common.narrow_high));
}

PANELS_INLINE __m256i low_precision(__m256i x, const CommonParameters& common) {
  const __m256i product = _mm256_mullo_epi32(first_stage(x, common), _mm256_set1_epi32(common.rest_in_128ths));
  return _mm256_srai_epi32(_mm256_add_epi32(product, _mm256_set1_epi32(64)), 7);
}

// Rounds to nearest, ties away from zero. Clamps to +-40000 first, beyond the range of 8-bit results.
PANELS_INLINE __m256i nearest(__m256 real) {
  const __m256 limited = _mm256_min_ps(_mm256_max_ps(real, _mm256_set1_ps(-40000.0f)), _mm256_set1_ps(40000.0f));
  const __m256i whole = _mm256_cvttps_epi32(limited);
  const __m256 rest = _mm256_sub_ps(limited, _mm256_cvtepi32_ps(whole));  // exact
  const __m256i up = _mm256_castps_si256(_mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ));
  const __m256i down = _mm256_castps_si256(_mm256_cmp_ps(rest, _mm256_set1_ps(-0.5f), _CMP_LE_OQ));
  return _mm256_add_epi32(_mm256_sub_epi32(whole, up), down);  // masks are -1
}

PANELS_INLINE __m256i float_scale(__m256i x, const LateBiasParameters& parameters, const CommonParameters& common, int half) {
  if (common.has_first_stage) x = first_stage(x, common);
  const __m256 product = _mm256_mul_ps(_mm256_cvtepi32_ps(x), _mm256_set1_ps(common.factor));
  return nearest(_mm256_add_ps(product, _mm256_loadu_ps(parameters.late_bias + 8 * half)));
}

template <PanelEpilogue Kind>
PANELS_INLINE __m256i requantize(__m256i x, const ColumnParameters& parameters, const CommonParameters& common,
                               int half) {
  if constexpr (Kind == PanelEpilogue::kFloatRequant) {
    return float_requant<false>(x, parameters.floats, half);
  } else if constexpr (Kind == PanelEpilogue::kKinkedRequant) {
    return float_requant<true>(x, parameters.floats, half);
  } else if constexpr (Kind == PanelEpilogue::kOneRounding) {
    return one_rounding(x, parameters.fixed, half);
  } else if constexpr (Kind == PanelEpilogue::kTwoRoundings) {
    return two_roundings(x, parameters.fixed, half);
  } else if constexpr (Kind == PanelEpilogue::kLowPrecision) {
    return low_precision(x, common);
  } else {
    return float_scale(x, parameters.real, common, half);
  }
}

template <PanelEpilogue Kind>
void apply_rows(const std::int32_t* sums, int rows, const ColumnParameters& parameters, const CommonParameters& common,
                 std::uint8_t* const* outs, std::ptrdiff_t offset, int columns) {
  const __m256i bias0 = load(parameters.bias), bias1 = load(parameters.bias + 8), offsets = load(parameters.offset);
  const __m128i low = _mm_set1_epi8(static_cast<char>(common.low));
  const __m128i high = _mm_set1_epi8(static_cast<char>(common.high));
  for (int row = 0; row < rows; ++row, sums += kColumns) {
    const __m256i first = requantize<Kind>(_mm256_add_epi32(load(sums), bias0), parameters, common, 0);
    const __m256i second = requantize<Kind>(_mm256_add_epi32(load(sums + 8), bias1), parameters, common, 1);
    // Saturation is monotone, and a value that saturates to 16 bits is outside of 0..255 after the offset is added:
    // |offset| <= 8192.
    __m256i words = _mm256_adds_epi16(_mm256_packs_epi32(first, second), offsets);
    if constexpr (Kind == PanelEpilogue::kFloatRequant || Kind == PanelEpilogue::kKinkedRequant) words = _mm256_srai_epi16(words, 1);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(words, words), 0x08);
    const __m128i stored = _mm_min_epu8(_mm_max_epu8(_mm256_castsi256_si128(packed), low), high);
    std::uint8_t* out = outs[row] + offset;
    if (columns == kColumns && common.lut == nullptr) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), stored);
    } else {
      alignas(16) std::uint8_t bytes[kColumns];
      _mm_store_si128(reinterpret_cast<__m128i*>(bytes), stored);
      if (common.lut != nullptr)
        for (int column = 0; column < columns; ++column) bytes[column] = common.lut[bytes[column]];
      std::memcpy(out, bytes, static_cast<std::size_t>(columns));
    }
  }
}

void apply_epilogue(PanelEpilogue kind, const std::int32_t* sums, int rows, const ColumnParameters& parameters,
            const CommonParameters& common, std::uint8_t* const* outs, std::ptrdiff_t offset, int columns) {
  switch (kind) {
    case PanelEpilogue::kFloatRequant:
      return apply_rows<PanelEpilogue::kFloatRequant>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kKinkedRequant:
      return apply_rows<PanelEpilogue::kKinkedRequant>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kOneRounding:
      return apply_rows<PanelEpilogue::kOneRounding>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kTwoRoundings:
      return apply_rows<PanelEpilogue::kTwoRoundings>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kLowPrecision:
      return apply_rows<PanelEpilogue::kLowPrecision>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kReal:
      return apply_rows<PanelEpilogue::kReal>(sums, rows, parameters, common, outs, offset, columns);
    case PanelEpilogue::kSums:
      return;
  }
}

void add_bias(std::int32_t* sums, int rows, const ColumnParameters& parameters) {
  const __m256i bias0 = load(parameters.bias), bias1 = load(parameters.bias + 8);
  for (int row = 0; row < rows; ++row, sums += kColumns) {
    const __m256i first = _mm256_add_epi32(load(sums), bias0), second = _mm256_add_epi32(load(sums + 8), bias1);
    store(sums, _mm256_permute2x128_si256(first, second, 0x20));
    store(sums + 8, _mm256_permute2x128_si256(first, second, 0x31));
  }
}

void widen(const std::uint8_t* from, std::ptrdiff_t count, std::uint8_t* to) {
  std::ptrdiff_t i = 0;
  for (; i + 16 <= count; i += 16) store(to + 2 * i, load_words(from + i));
  for (; i < count; ++i) {
    to[2 * i] = from[i];
    to[2 * i + 1] = 0;
  }
}

constexpr Functions kFunctions = {
    {multiply<1>, multiply<2>, multiply<3>, multiply<4>, multiply<5>, multiply<6>},
    depthwise_words,
#if defined(PANELS_BYTE_DOT)
    depthwise_bytes,
#else
    nullptr,
#endif
    apply_epilogue,
    add_bias,
    widen,
#if defined(PANELS_BYTE_DOT)
    true,
#else
    false,
#endif
};

}  // namespace
}  // namespace tpuconvert::panels::PANELS_NAMESPACE
