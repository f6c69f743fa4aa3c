// Requantization of rows of sums with vectors of 16 lanes.
#include "int8/lanes/lanes_512.h"

namespace tpuconvert {
namespace {

using Lanes = Lanes512;

}  // namespace
}  // namespace tpuconvert

// Uses `Lanes`.
#include "int8/epilogue/epilogue_rows_tile.h"

namespace tpuconvert {
namespace {

// Requantizes with one float factor. Clamping first keeps the conversion within 32 bits.
inline V by_factor(const RowParameters& p, int channel, V sums) {
  constexpr int kDown = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 factor = _mm512_loadu_ps(p.factor + channel), addend = _mm512_loadu_ps(p.addend + channel);
  const __m512 real = _mm512_fmadd_round_ps(_mm512_cvtepi32_ps(sums), factor, addend, kDown);
  const __m512 limited = _mm512_min_ps(_mm512_max_ps(real, _mm512_set1_ps(p.low)), _mm512_set1_ps(p.high));
  return _mm512_cvt_roundps_epi32(limited, kDown);
}

template <RowResult Result>
void block_by_factor(const RowParameters& given, int first, int count, const RowBlock& block) {
  const RowParameters p = given;  // a local copy, so that stores do not force reloads
  const RowBlock b = block;
  if (count < kLanes) {
    for (int row = 0; row < b.rows; ++row) {
      const V sums = Lanes::load_first(b.sums + row * b.stride, count);
      store<Result>(by_factor(p, first, sums), p, b.outputs[row] + b.offset, count);
    }
    return;
  }
  for (int next = 0; next < count; next += kLanes) {
    // the last full vector, which may overlap the previous one
    const int at = next + kLanes <= count ? next : count - kLanes;
    const std::size_t offset = b.offset + static_cast<std::size_t>(at) * kBytesOf<Result>;
    for (int row = 0; row < b.rows; ++row)
      store<Result>(by_factor(p, first + at, Lanes::load(b.sums + row * b.stride + at)), p, b.outputs[row] + offset);
  }
}

}  // namespace

RowFunction row_function_avx512(const RowVariant& variant) { return function_for(variant); }

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
