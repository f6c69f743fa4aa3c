// Depthwise convolution with any window, stride and dilation. Part of a result row is computed in two steps:
// interleaving, then summation.
#if defined(__x86_64__)

#include "int8/depthwise/channel_block.h"

namespace tpuconvert::avx512 {
namespace {

using B = Block<64>;
constexpr std::size_t kGroupBytes = kVectors * 64;

void interleave(const DepthwiseLine& line) {
  std::uint8_t* to = line.buffer;
  for (int column = 0; column < line.columns; ++column) {
    const int x = line.left + column;
    const bool is_inside = x >= 0 && x < line.width;
    for (int group = 0; group < line.groups; ++group, to += kGroupBytes) {
      const auto row = [&](int i) TPU_INLINED {
        const int index = 4 * group + i;
        return B::load(is_inside ? line.rows[index] + x * line.in_pixel : line.padding);
      };
      const Column<64> interleaved_rows = interleaved<64>(row(0), row(1), row(2), row(3));
      unrolled<kVectors>([&](auto v) TPU_INLINED { _mm512_store_si512(to + 64 * v, interleaved_rows.v[v]); });
    }
  }
}

// Computes `Pixels` adjacent results, starting at `x`.
template <int Pixels, TileEpilogue Epilogue>
TPU_INLINE void compute(const DepthwiseLine& line, int x) {
  __m512i sums[Pixels][kVectors];
  unrolled<Pixels>([&](auto pixel) TPU_INLINED {
    unrolled<kVectors>([&](auto v) TPU_INLINED { sums[pixel][v] = _mm512_load_si512(line.parameters[v].bias); });
  });
  const std::size_t column_bytes = kGroupBytes * static_cast<std::size_t>(line.groups);
  const std::size_t pixel_bytes = column_bytes * static_cast<std::size_t>(line.stride);
  const std::uint8_t* column = line.buffer + static_cast<std::size_t>(x) * pixel_bytes;
  const std::int8_t* weights = line.weights;
  for (int tap = 0; tap < line.taps; ++tap, column += column_bytes * static_cast<std::size_t>(line.dilation)) {
    const std::uint8_t* from = column;
    for (int group = 0; group < line.groups; ++group, from += kGroupBytes, weights += kGroupBytes) {
      unrolled<kVectors>([&](auto v) TPU_INLINED {
        const __m512i weight = _mm512_load_si512(weights + 64 * v);
        unrolled<Pixels>([&](auto pixel) TPU_INLINED {
          dot(sums[pixel][v], _mm512_load_si512(from + pixel * pixel_bytes + 64 * v), weight);
        });
      });
    }
  }
  if constexpr (Epilogue == TileEpilogue::kSums) {
    unrolled<Pixels>([&](auto pixel) TPU_INLINED {
      unrolled<kVectors>([&](auto v) TPU_INLINED { store_sums<64>(line.sums + (x + pixel) * 64, sums[pixel][v], v); });
    });
  } else {
    const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * line.offset + 1));
    const Limits limits{_mm512_set1_epi8(static_cast<char>(line.low)), _mm512_set1_epi8(static_cast<char>(line.high))};
    unrolled<Pixels>([&](auto pixel) TPU_INLINED {
      unrolled<kVectors>([&](auto v) TPU_INLINED {
        sums[pixel][v] = requantize<Epilogue>(sums[pixel][v], line.parameters[v]);
      });
      __m512i lower = _mm512_packs_epi32(sums[pixel][0], sums[pixel][1]);
      __m512i upper = _mm512_packs_epi32(sums[pixel][2], sums[pixel][3]);
      if constexpr (!includes_offset(Epilogue)) {
        lower = halved(lower, doubled_offset);
        upper = halved(upper, doubled_offset);
      }
      __m512i bytes = clamp(_mm512_packus_epi16(lower, upper), limits);
      if (line.lut != nullptr) bytes = look_up(line.lut, bytes);
      _mm512_mask_storeu_epi8(line.output + (x + pixel) * line.out_pixel, line.mask, bytes);
    });
  }
}

template <TileEpilogue Epilogue>
void run_line(const DepthwiseLine& line) {
  interleave(line);
  int x = 0;
  for (; x + 4 <= line.out_width; x += 4) compute<4, Epilogue>(line, x);
  for (; x < line.out_width; ++x) compute<1, Epilogue>(line, x);
}

}  // namespace

DepthwiseLineKernel depthwise_line(TileEpilogue epilogue) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal: return run_line<TileEpilogue::kSubnormal>;
    case TileEpilogue::kOneFactor: return run_line<TileEpilogue::kOneFactor>;
    case TileEpilogue::kTwoFactors: return run_line<TileEpilogue::kTwoFactors>;
    case TileEpilogue::kKinked: return run_line<TileEpilogue::kKinked>;
    case TileEpilogue::kWords:
    case TileEpilogue::kSums: break;
  }
  return run_line<TileEpilogue::kSums>;
}

}  // namespace tpuconvert::avx512

#endif
