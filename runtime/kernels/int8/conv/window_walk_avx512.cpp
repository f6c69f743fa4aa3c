#if defined(__x86_64__)

#include <immintrin.h>

#include "int8/conv/window_walk.h"

namespace tpuconvert::avx512 {
namespace {

// Sixteen addresses.
struct Addresses {
  __m512i lower, upper;
};

inline __attribute__((always_inline)) Addresses load(const void* from) {
  return {_mm512_load_si512(from), _mm512_load_si512(static_cast<const char*>(from) + 64)};
}

inline __attribute__((always_inline)) void store(void* to, const Addresses& a) {
  _mm512_store_si512(to, a.lower);
  _mm512_store_si512(static_cast<char*>(to) + 64, a.upper);
}

inline __attribute__((always_inline)) void add(Addresses* a, __mmask16 lanes, std::ptrdiff_t bytes) {
  const __m512i step = _mm512_set1_epi64(bytes);
  a->lower = _mm512_mask_add_epi64(a->lower, static_cast<__mmask8>(lanes), a->lower, step);
  a->upper = _mm512_mask_add_epi64(a->upper, static_cast<__mmask8>(lanes >> 8), a->upper, step);
}

inline __attribute__((always_inline)) __m512i first_tap(const std::int32_t* results, int stride, int pad) {
  const __m512i strided = _mm512_mullo_epi32(_mm512_load_si512(results), _mm512_set1_epi32(stride));
  return _mm512_sub_epi32(strided, _mm512_set1_epi32(pad));
}

constexpr __mmask16 kAll = 0xffff;

}  // namespace

int place_segments(const WalkShape& shape, const Walk& walk, int rows, const std::uint8_t** to, bool* joined) {
  const __mmask16 used = static_cast<__mmask16>((1u << rows) - 1);
  const __m512i height = _mm512_set1_epi32(shape.height), width = _mm512_set1_epi32(shape.width);
  const __m512i padding = _mm512_set1_epi64(reinterpret_cast<std::intptr_t>(shape.padding));
  // The coordinates of valid results fit 32 bits for any stride; the other lanes are unused.
  const __m512i first_left = first_tap(walk.x, shape.stride_w, shape.pad_left);
  const __m512i last_left = _mm512_add_epi32(first_left, _mm512_set1_epi32((shape.kernel_w - 1) * shape.dilation_w));
  // The unsigned comparison also excludes negative coordinates.
  const __mmask16 inside = _mm512_cmplt_epu32_mask(first_left, width) & _mm512_cmplt_epu32_mask(last_left, width);
  *joined = *joined && shape.joins_taps && (inside & used) == used;
  const int columns = *joined ? 1 : shape.kernel_w;
  __m512i top = first_tap(walk.y, shape.stride_h, shape.pad_top);
  Addresses row = load(walk.input);
  for (int y = 0; y < shape.kernel_h; ++y) {
    const __mmask16 rows_inside = _mm512_cmplt_epu32_mask(top, height);
    __m512i left = first_left;
    Addresses tap = row;
    for (int x = 0; x < columns; ++x, to += rows) {
      const __mmask16 found = rows_inside & _mm512_cmplt_epu32_mask(left, width);
      _mm512_storeu_si512(to, _mm512_mask_blend_epi64(static_cast<__mmask8>(found), padding, tap.lower));
      if (rows > 8)
        _mm512_storeu_si512(to + 8, _mm512_mask_blend_epi64(static_cast<__mmask8>(found >> 8), padding, tap.upper));
      left = _mm512_add_epi32(left, _mm512_set1_epi32(shape.dilation_w));
      add(&tap, kAll, shape.tap_column);
    }
    top = _mm512_add_epi32(top, _mm512_set1_epi32(shape.dilation_h));
    add(&row, kAll, shape.tap_row);
  }
  return shape.kernel_h * columns;
}

void walk_on(const WalkShape& shape, const Walk& from, int rows, Walk* to) {
  __m512i y = _mm512_load_si512(from.y);
  __m512i x = _mm512_add_epi32(_mm512_load_si512(from.x), _mm512_set1_epi32(rows));
  const __m512i one = _mm512_set1_epi32(1);
  Addresses input = load(from.input), output = load(from.output), other = load(from.other);
  add(&input, kAll, rows * shape.input.result);
  add(&output, kAll, rows * shape.output.result);
  add(&other, kAll, rows * shape.other.result);
  for (;;) {
    const __mmask16 next = _mm512_cmpge_epi32_mask(x, _mm512_set1_epi32(shape.out_width));
    if (next == 0) break;
    x = _mm512_mask_sub_epi32(x, next, x, _mm512_set1_epi32(shape.out_width));
    y = _mm512_mask_add_epi32(y, next, y, one);
    add(&input, next, shape.input.row);
    add(&output, next, shape.output.row);
    add(&other, next, shape.other.row);
    const __mmask16 ends = _mm512_mask_cmpge_epi32_mask(next, y, _mm512_set1_epi32(shape.out_height));
    if (ends == 0) continue;
    y = _mm512_mask_sub_epi32(y, ends, y, _mm512_set1_epi32(shape.out_height));
    add(&input, ends, shape.input.image);
    add(&output, ends, shape.output.image);
    add(&other, ends, shape.other.image);
  }
  _mm512_store_si512(to->y, y);
  _mm512_store_si512(to->x, x);
  store(to->input, input);
  store(to->output, output);
  store(to->other, other);
}

}  // namespace tpuconvert::avx512

#endif
