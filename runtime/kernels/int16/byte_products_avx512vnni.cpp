// The 16-bit convolution as products of bytes for AVX512-VNNI.
#if defined(__x86_64__)
#include "int8/tile/lanes.h"

#include "int16/conv_kernels.h"

namespace tpuconvert::int16 {
namespace {

#include "int16/lanes_512.inl"

#include "int16/finish.inl"

#include "int16/byte_finish.inl"

using avx512::dot;

constexpr int kByteRows = 6;  // two sums for each of two panels: 24 accumulators, four weights and two operands

// Four bytes without alignment.
typedef std::int32_t FourBytes __attribute__((aligned(1), may_alias));

__attribute__((always_inline)) inline __m512i all_of(const std::uint8_t* from) {
  return _mm512_set1_epi32(*reinterpret_cast<const FourBytes*>(from));
}

template <int Panels, bool IsWide, Store Kind, Second Again>
__attribute__((noinline)) void multiply_panels(const ByteTile& tile, int first) {
  // The two products of `middle` follow each other at once. With one panel, they have separate sums, as there are too few
  // other instructions to wait for the first one.
  constexpr bool kHasRest = IsWide && Panels == 1;
  __m512i top[kByteRows][Panels], middle[kByteRows][Panels], rest[kHasRest ? kByteRows : 1];
  unrolled<kHasRest ? kByteRows : 0>([&](auto row) __attribute__((always_inline)) { rest[row] = _mm512_setzero_si512(); });
  unrolled<kByteRows>([&](auto row) __attribute__((always_inline)) {
    unrolled<Panels>([&](auto panel) __attribute__((always_inline)) {
      top[row][panel] = _mm512_setzero_si512();
      middle[row][panel] = _mm512_load_si512(tile.panels[first + panel].bias);
    });
  });
  const std::int8_t* weights = tile.weights + first * tile.panel_bytes;
  const std::ptrdiff_t panel_bytes = tile.panel_bytes, low_plane = tile.low_plane;
  for (int index = 0; index < tile.segment_count; ++index) {
    const Segment segment = tile.segments[index];
    const std::uint8_t* end[kByteRows];
    unrolled<kByteRows>([&](auto row) __attribute__((always_inline)) {
      end[row] = tile.pixels[row] + (segment.offset + segment.count);
    });
    std::ptrdiff_t at = -segment.count;
    do {
      __m512i high[Panels], low[Panels];
      unrolled<Panels>([&](auto panel) __attribute__((always_inline)) {
        high[panel] = _mm512_loadu_si512(weights + panel * panel_bytes);
        low[panel] = _mm512_loadu_si512(weights + panel * panel_bytes + 64);
      });
      unrolled<kByteRows>([&](auto row) __attribute__((always_inline)) {
        const __m512i x = all_of(end[row] + at);
        unrolled<Panels>([&](auto panel) __attribute__((always_inline)) {
          dot(top[row][panel], x, high[panel]);
          dot(middle[row][panel], x, low[panel]);
        });
        if constexpr (IsWide) {
          const __m512i y = all_of(end[row] + (at + low_plane));
          unrolled<Panels>([&](auto panel) __attribute__((always_inline)) {
            dot(kHasRest ? rest[row] : middle[row][panel], y, high[panel]);
          });
        }
      });
      weights += 128;
      at += 4;
    } while (at != 0);
  }
  unrolled<kHasRest ? kByteRows : 0>([&](auto row) __attribute__((always_inline)) {
    middle[row][0] = _mm512_add_epi32(middle[row][0], rest[row]);
  });
  unrolled<Panels>([&](auto panel) __attribute__((always_inline)) {
    const int start = (first + panel) * kPanel;
    unrolled<kByteRows>([&](auto row) __attribute__((always_inline)) {
      if (row >= tile.rows) return;
      finish_bytes<Kind, Again>(top[row][panel], middle[row][panel], tile.panels[first + panel], *tile.finish,
                                tile.columns - start,
                                tile.outputs[row] + tile.offset + static_cast<std::size_t>(start) * size_of(Kind));
    });
  });
}

template <bool IsWide, Store Kind, Second Again>
void multiply_tile(const ByteTile& tile) {
  const int panels = (tile.columns + kPanel - 1) / kPanel;
  int first = 0;
  for (; first + 2 <= panels; first += 2) multiply_panels<2, IsWide, Kind, Again>(tile, first);
  if (first < panels) multiply_panels<1, IsWide, Kind, Again>(tile, first);
}

}  // namespace

const ByteFunctions& byte_functions_avx512vnni() {
  static constexpr ByteFunctions kFunctions{kByteRows, false, multiply, split_words};
  return kFunctions;
}

}  // namespace tpuconvert::int16
#endif
