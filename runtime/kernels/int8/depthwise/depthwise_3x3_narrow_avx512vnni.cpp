// 3x3 depthwise convolution of blocks of 32 or 16 channels with stride 1. Adjacent pixels share a register from the
// load on, so that all lanes are used. Rows are handled as in depthwise_3x3.
#if defined(__x86_64__)

#include "int8/depthwise/depthwise.h"
#include "int8/depthwise/channel_block.h"

namespace tpuconvert::avx512 {
namespace {

// Registers with kCount adjacent pixels of a row.
template <int Width>
struct Pixels {
  static constexpr int kCount = 64 / Width;

  // Loads pixels first..first + kCount - 1, with padding outside of the row.
  static TPU_INLINE __m512i load(const DepthwiseArguments& arguments, const std::uint8_t* row, int first) {
    if (__builtin_expect(first >= 0 && first + kCount <= arguments.width, 1)) {
      const std::uint8_t* from = row + first * arguments.in_pixel;
      if (arguments.in_pixel == Width) return _mm512_loadu_si512(from);
      return assembled(from, from + arguments.in_pixel, from + (kCount - 2) * arguments.in_pixel,
                       from + (kCount - 1) * arguments.in_pixel);
    }
    const std::uint8_t* at[kCount];
    for (int i = 0; i < kCount; ++i) {
      const bool is_inside = first + i >= 0 && first + i < arguments.width;
      at[i] = is_inside ? row + (first + i) * arguments.in_pixel : arguments.padding;
    }
    return assembled(at[0], at[1], at[kCount - 2], at[kCount - 1]);
  }

  // Shifts `pixels` by `Distance` pixels; pixels of `next` follow.
  template <int Distance>
  static TPU_INLINE __m512i shifted(__m512i pixels, __m512i next) {
    if constexpr (Distance == 0) return pixels;
    if constexpr (Distance == kCount) return next;
    return _mm512_alignr_epi64(next, pixels, Distance * Width / 8);
  }

  // Repeats a vector of weights or biases for every pixel.
  static TPU_INLINE __m512i repeated(const void* from) {
    if constexpr (Width == 32) {
      return _mm512_broadcast_i64x4(_mm256_loadu_si256(static_cast<const __m256i_u*>(from)));
    } else {
      return _mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i_u*>(from)));
    }
  }

 private:
  static TPU_INLINE __m512i assembled(const std::uint8_t* a, const std::uint8_t* b, const std::uint8_t* c,
                                      const std::uint8_t* d) {
    using Half = __m256i_u;
    using Quarter = __m128i_u;
    if constexpr (Width == 32) {
      const __m512i first = _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const Half*>(a)));
      return _mm512_inserti64x4(first, _mm256_loadu_si256(reinterpret_cast<const Half*>(b)), 1);
    } else {
      __m512i all = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const Quarter*>(a)));
      all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const Quarter*>(b)), 1);
      all = _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const Quarter*>(c)), 2);
      return _mm512_inserti32x4(all, _mm_loadu_si128(reinterpret_cast<const Quarter*>(d)), 3);
    }
  }
};

template <int Width, int Rows>
TPU_INLINE Column<64> load_column(const DepthwiseArguments& arguments, int first) {
  using P = Pixels<Width>;
  const __m512i a = P::load(arguments, arguments.rows[0], first), b = P::load(arguments, arguments.rows[1], first);
  const __m512i c = P::load(arguments, arguments.rows[2], first);
  // With one row of results, the fourth tap has zero weights.
  return interleaved<64>(a, b, c, Rows == 2 ? P::load(arguments, arguments.rows[3], first) : c);
}

// Stores the first `count` pixels of a register of bytes.
template <int Width>
TPU_INLINE void store_pixels(const DepthwiseArguments& arguments, std::uint8_t* to, int count, __m512i bytes) {
  if (arguments.out_pixel == Width && arguments.mask == ~std::uint64_t{0} >> (64 - Width)) {
    _mm512_mask_storeu_epi8(to, ~std::uint64_t{0} >> (64 - Width * count), bytes);
    return;
  }
  unrolled<64 / Width>([&](auto pixel) TPU_INLINED {
    if (pixel >= count) return;
    std::uint8_t* at = to + pixel * arguments.out_pixel;
    if constexpr (Width == 32) {
      _mm256_mask_storeu_epi8(at, static_cast<__mmask32>(arguments.mask), _mm512_extracti64x4_epi64(bytes, pixel));
    } else {
      _mm_mask_storeu_epi8(at, static_cast<__mmask16>(arguments.mask), _mm512_extracti32x4_epi32(bytes, pixel));
    }
  });
}

// Stores the sums of vector `v` of the first `count` pixels in channel order.
template <int Width>
TPU_INLINE void store_pixel_sums(std::int32_t* to, int count, int v, __m512i sums) {
  unrolled<4>([&](auto lane) TPU_INLINED {
    constexpr int kPixel = 16 * decltype(lane)::value / Width, kFirst = 16 * decltype(lane)::value % Width;
    if (kPixel < count)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + kPixel * 64 + kFirst + 4 * v),
                       _mm512_extracti32x4_epi32(sums, lane));
  });
}

// Computes `Groups` registers of results in each row, starting at pixel `x`; the last register has `count` pixels.
// inputs[i] is the register of input pixels at the first tap of group i; inputs[Groups] contains the pixels after the
// last group.
template <int Width, int Rows, TileEpilogue Epilogue, int Groups>
TPU_INLINE void compute(const DepthwiseArguments& arguments, const Column<64> (&inputs)[3], int x, int count) {
  using P = Pixels<Width>;
  __m512i results[Groups][Rows][kVectors];
  const auto pixels_of = [count](int group) TPU_INLINED { return group + 1 < Groups ? P::kCount : count; };
  unrolled<kVectors>([&](auto v) TPU_INLINED {
    __m512i sums[Groups][Rows];
    const __m512i bias = P::repeated(arguments.parameters[v].bias);
    unrolled<Groups * Rows>([&](auto i) TPU_INLINED { sums[i / Rows][i % Rows] = bias; });
    unrolled<3>([&](auto tap) TPU_INLINED {
      __m512i taps[Groups];
      unrolled<Groups>([&](auto group) TPU_INLINED {
        taps[group] = P::template shifted<decltype(tap)::value>(inputs[group].v[v], inputs[group + 1].v[v]);
      });
      unrolled<Rows>([&](auto row) TPU_INLINED {
        const __m512i weights = P::repeated(arguments.weights + ((row * 3 + tap) * kVectors + v) * Width);
        unrolled<Groups>([&](auto group) TPU_INLINED { dot(sums[group][row], taps[group], weights); });
      });
    });
    unrolled<Groups>([&](auto group) TPU_INLINED {
      unrolled<Rows>([&](auto row) TPU_INLINED {
        if constexpr (Epilogue == TileEpilogue::kSums) {
          store_pixel_sums<Width>(arguments.sums + (row * arguments.out_width + x + group * P::kCount) * 64,
                                  pixels_of(group), v, sums[group][row]);
        } else {
          results[group][row][v] = requantize<Epilogue>(sums[group][row], arguments.parameters[v]);
        }
      });
    });
  });
  if constexpr (Epilogue != TileEpilogue::kSums) {
    const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1));
    const Limits limits{_mm512_set1_epi8(static_cast<char>(arguments.low)),
                        _mm512_set1_epi8(static_cast<char>(arguments.high))};
    unrolled<Groups * Rows>([&](auto i) TPU_INLINED {
      constexpr int kGroup = decltype(i)::value / Rows, kRow = decltype(i)::value % Rows;
      const __m512i(&found)[kVectors] = results[kGroup][kRow];
      __m512i lower = _mm512_packs_epi32(found[0], found[1]), upper = _mm512_packs_epi32(found[2], found[3]);
      if constexpr (!includes_offset(Epilogue)) {
        lower = halved(lower, doubled_offset);
        upper = halved(upper, doubled_offset);
      }
      __m512i bytes = clamp(_mm512_packus_epi16(lower, upper), limits);
      if (arguments.lut != nullptr) bytes = look_up(arguments.lut, bytes);
      store_pixels<Width>(arguments, arguments.outputs[kRow] + (x + kGroup * P::kCount) * arguments.out_pixel,
                          pixels_of(kGroup), bytes);
    });
  }
}

template <int Width, int Rows, TileEpilogue Epilogue>
void run_rows(const DepthwiseArguments& arguments) {
  constexpr int kCount = Pixels<Width>::kCount;
  const auto column = [&](int x) TPU_INLINED { return load_column<Width, Rows>(arguments, arguments.left + x); };
  Column<64> inputs[3] = {column(0), {}, {}};
  int x = 0;
  for (; x + 2 * kCount <= arguments.out_width; x += 2 * kCount) {
    inputs[1] = column(x + kCount);
    inputs[2] = column(x + 2 * kCount);
    compute<Width, Rows, Epilogue, 2>(arguments, inputs, x, kCount);
    inputs[0] = inputs[2];
  }
  for (; x < arguments.out_width; x += kCount) {
    inputs[1] = column(x + kCount);
    const int left = arguments.out_width - x;
    compute<Width, Rows, Epilogue, 1>(arguments, inputs, x, left < kCount ? left : kCount);
    inputs[0] = inputs[1];
  }
}

template <TileEpilogue Epilogue>
DepthwiseKernel with_width(int width, int rows) {
  if (width == 32) return rows == 2 ? run_rows<32, 2, Epilogue> : run_rows<32, 1, Epilogue>;
  return rows == 2 ? run_rows<16, 2, Epilogue> : run_rows<16, 1, Epilogue>;
}

}  // namespace

DepthwiseKernel depthwise_3x3_joined(TileEpilogue epilogue, int width, int rows) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal: return with_width<TileEpilogue::kSubnormal>(width, rows);
    case TileEpilogue::kOneFactor: return with_width<TileEpilogue::kOneFactor>(width, rows);
    case TileEpilogue::kTwoFactors: return with_width<TileEpilogue::kTwoFactors>(width, rows);
    case TileEpilogue::kKinked: return with_width<TileEpilogue::kKinked>(width, rows);
    case TileEpilogue::kWords:
    case TileEpilogue::kSums: break;
  }
  return with_width<TileEpilogue::kSums>(width, rows);
}

}  // namespace tpuconvert::avx512

#endif
