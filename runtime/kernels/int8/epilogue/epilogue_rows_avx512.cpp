// Requantization of rows of sums with vectors of 16 lanes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>

#include "int8/epilogue/epilogue_rows.h"

namespace tpuconvert {
namespace {

struct Lanes {
  using Integer = __m512i;
  static constexpr int kCount = 16;

  static Integer load(const std::int32_t* from) { return _mm512_loadu_si512(from); }
  // Loads the first n lanes; the others are 0.
  static Integer load_first(const std::int32_t* from, int n) {
    return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1u << n) - 1), from);
  }
  static void copy(std::uint8_t* to, const std::uint8_t* from, int bytes) {
    const __mmask64 mask = (__mmask64{1} << bytes) - 1;
    _mm512_mask_storeu_epi8(to, mask, _mm512_maskz_loadu_epi8(mask, from));
  }
  static Integer all(std::int32_t value) { return _mm512_set1_epi32(value); }
  static Integer multiply(Integer a, Integer b) { return _mm512_mul_epi32(a, b); }
  static Integer upper(Integer x) { return _mm512_srli_epi64(x, 32); }
  static Integer add_wide(Integer x, std::int64_t value) { return _mm512_add_epi64(x, _mm512_set1_epi64(value)); }
  static Integer joined(Integer even, Integer odd) {
    return _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
  }
  static Integer add(Integer a, Integer b) { return _mm512_add_epi32(a, b); }
  static Integer subtract(Integer a, Integer b) { return _mm512_sub_epi32(a, b); }
  template <int Bits>
  static Integer shifted_right(Integer x) { return _mm512_srai_epi32(x, Bits); }
  static Integer shifted_right(Integer x, Integer bits) { return _mm512_srav_epi32(x, bits); }
  static Integer shifted_left(Integer x, Integer bits) { return _mm512_sllv_epi32(x, bits); }
  static Integer where_negative(Integer sign, Integer a, Integer b) {
    return _mm512_mask_blend_epi32(_mm512_movepi32_mask(sign), b, a);
  }
  static Integer limited(Integer x, Integer low, Integer high) {
    return _mm512_min_epi32(_mm512_max_epi32(x, low), high);
  }
  static void store_bytes(std::uint8_t* out, Integer x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(x));
  }
  static void store_words(std::uint8_t* out, Integer x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(x));
  }
  static void store_first_words(std::uint8_t* out, Integer x, int n) {
    _mm256_mask_storeu_epi16(out, static_cast<__mmask16>((1u << n) - 1), _mm512_cvtepi32_epi16(x));
  }
  static void store(std::uint8_t* out, Integer x) { _mm512_storeu_si512(out, x); }
  static void store_product(std::uint8_t* out, Integer x, float scale) {
    _mm512_storeu_ps(out, _mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(scale)));
  }
};

#include "int8/epilogue/epilogue_rows.inl"

// Requantizes with one float factor. Clamping first keeps the conversion within 32 bits.
inline Lanes::Integer by_factor(const RowParameters& p, int channel, Lanes::Integer sums) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 factor = _mm512_loadu_ps(p.factor + channel), addend = _mm512_loadu_ps(p.addend + channel);
  const __m512 real = _mm512_fmadd_round_ps(_mm512_cvtepi32_ps(sums), factor, addend, kDown);
  const __m512 limited = _mm512_min_ps(_mm512_max_ps(real, _mm512_set1_ps(p.low)), _mm512_set1_ps(p.high));
  return _mm512_cvt_roundps_epi32(limited, kDown);
}

template <RowResult Result>
void block_by_factor(const RowParameters& given, int first, int count, const RowBlock& block) {
  constexpr int kBytes = Result == RowResult::kByte ? 1 : Result == RowResult::kWord ? 2 : 4;
  const RowParameters p = given;  // a local copy, so that stores do not force reloads
  const RowBlock b = block;
  if (count < Lanes::kCount) {
    for (int row = 0; row < b.rows; ++row) {
      alignas(64) std::uint8_t results[Lanes::kCount * kBytes];
      store<Result>(by_factor(p, first, Lanes::load_first(b.sums + row * b.stride, count)), p, results);
      Lanes::copy(b.outputs[row] + b.offset, results, count * kBytes);
    }
    return;
  }
  for (int next = 0; next < count; next += Lanes::kCount) {
    // the last full vector, which may overlap the previous one
    const int at = next + Lanes::kCount <= count ? next : count - Lanes::kCount;
    const std::size_t offset = b.offset + static_cast<std::size_t>(at) * kBytes;
    for (int row = 0; row < b.rows; ++row)
      store<Result>(by_factor(p, first + at, Lanes::load(b.sums + row * b.stride + at)), p, b.outputs[row] + offset);
  }
}

}  // namespace

RowFunction row_function_avx512(const RowVariant& variant) {
  return variant.rounds_twice ? function_for<true>(variant) : function_for<false>(variant);
}

BlockFunction block_of_rows_avx512(const RowVariant& variant) { return block_for(variant); }

BlockFunction block_function_avx512(RowResult result) {
  switch (result) {
    case RowResult::kByte: return block_by_factor<RowResult::kByte>;
    case RowResult::kWord: return block_by_factor<RowResult::kWord>;
    case RowResult::kInteger: return block_by_factor<RowResult::kInteger>;
    case RowResult::kReal: return block_by_factor<RowResult::kReal>;
  }
  return nullptr;
}

}  // namespace tpuconvert
