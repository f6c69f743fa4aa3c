// 3x3 depthwise convolution of one or two result rows.
//
// One result row needs three input rows, two result rows need four. The weights of each result row are zero for the
// input row that is outside of its window, so that both result rows use the same interleaved dwords. Blocks of two
// result rows and two columns share loads, interleaving, weights and parameters.
#if defined(__x86_64__)

#include "int8/depthwise/depthwise.h"
#include "int8/depthwise/channel_block.h"

namespace tpuconvert::avx512 {
namespace {

// Loads and interleaves one input column after another.
template <int Width, int Rows>
class RowLoader {
 public:
  TPU_INLINE explicit RowLoader(const DepthwiseArguments& arguments)
      : rows_{arguments.rows[0], arguments.rows[1], arguments.rows[2], arguments.rows[Rows == 2 ? 3 : 2]},
        padding_(arguments.padding),
        offset_(arguments.left * arguments.in_pixel),
        end_(arguments.width * arguments.in_pixel),
        step_(arguments.in_pixel) {}

  TPU_INLINE Column<Width> next() {
    using B = Block<Width>;
    const std::ptrdiff_t offset = offset_;
    offset_ += step_;
    if (__builtin_expect(static_cast<std::size_t>(offset) >= static_cast<std::size_t>(end_), 0)) {
      const auto padding = B::load(padding_);
      return interleaved<Width>(padding, padding, padding, padding);
    }
    const auto a = B::load(rows_[0] + offset), b = B::load(rows_[1] + offset), c = B::load(rows_[2] + offset);
    if constexpr (Rows == 2) {
      return interleaved<Width>(a, b, c, B::load(rows_[3] + offset));
    } else {
      return interleaved<Width>(a, b, c, c);  // the fourth tap has zero weights
    }
  }

 private:
  const std::uint8_t* rows_[4];
  const std::uint8_t* padding_;
  std::ptrdiff_t offset_, end_, step_;
};

// Concatenates the sums of several pixels in one register.
template <int Width, int Pixels>
TPU_INLINE __m512i joined(const typename Block<Width>::Vector* sums) {
  const __m512i first = Block<Width>::widened(sums[0]);
  if constexpr (Pixels == 1) {
    return first;
  } else if constexpr (Width == 32) {
    return _mm512_inserti64x4(first, sums[1], 1);
  } else {
    const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(sums[0]), sums[1], 1);
    if constexpr (Pixels == 2) {
      return _mm512_castsi256_si512(low);
    } else {
      return _mm512_inserti64x4(_mm512_castsi256_si512(low),
                                _mm256_inserti128_si256(_mm256_castsi128_si256(sums[2]), sums[3], 1), 1);
    }
  }
}

// Stores the bytes of pixel `Part` of a register with several pixels.
template <int Width, int Part>
TPU_INLINE void store_part(std::uint8_t* to, std::uint64_t mask, __m512i bytes) {
  if constexpr (Width == 64) {
    _mm512_mask_storeu_epi8(to, mask, bytes);
  } else if constexpr (Width == 32) {
    _mm256_mask_storeu_epi8(to, static_cast<__mmask32>(mask), _mm512_extracti64x4_epi64(bytes, Part));
  } else {
    _mm_mask_storeu_epi8(to, static_cast<__mmask16>(mask), _mm512_extracti32x4_epi32(bytes, Part));
  }
}

// Computes `Columns` adjacent pixels, starting at `x`, in `Rows` rows. Pixel p uses inputs[p * Stride + 0..2].
template <int Width, int Stride, int Rows, int Columns, TileEpilogue Epilogue, int Inputs>
TPU_INLINE void compute(const DepthwiseArguments& arguments, const Column<Width> (&inputs)[Inputs], int x) {
  using B = Block<Width>;
  using Vector = typename B::Vector;
  constexpr int kPixels = Rows * Columns;
  constexpr int kJoined = kPixels < 64 / Width ? kPixels : 64 / Width;  // pixels per register of sums
  constexpr int kGroups = kPixels / kJoined;
  constexpr std::size_t kVectorBytes = Width;
  __m512i words[2][kGroups];  // 16-bit results; each register packs two vectors
  const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1));
  unrolled<2>([&](auto half) TPU_INLINED {
    __m512i results[2][kGroups];
    unrolled<2>([&](auto which) TPU_INLINED {
      constexpr int v = 2 * decltype(half)::value + decltype(which)::value;
      Vector sums[kPixels];
      const Vector bias = B::load(arguments.parameters[v].bias);
      unrolled<kPixels>([&](auto pixel) TPU_INLINED { sums[pixel] = bias; });
      unrolled<3>([&](auto tap) TPU_INLINED {
        unrolled<Rows>([&](auto row) TPU_INLINED {
          const Vector weights = B::load(arguments.weights + ((row * 3 + tap) * kVectors + v) * kVectorBytes);
          unrolled<Columns>([&](auto column) TPU_INLINED {
            dot(sums[row * Columns + column], inputs[column * Stride + tap].v[v], weights);
          });
        });
      });
      if constexpr (Epilogue == TileEpilogue::kSums) {
        unrolled<kPixels>([&](auto pixel) TPU_INLINED {
          const int row = pixel / Columns, column = pixel % Columns;
          store_sums<Width>(arguments.sums + (row * arguments.out_width + x + column) * 64, B::widened(sums[pixel]), v);
        });
      } else {
        unrolled<kGroups>([&](auto group) TPU_INLINED {
          results[which][group] =
              requantize<Epilogue>(joined<Width, kJoined>(sums + group * kJoined), arguments.parameters[v]);
        });
      }
    });
    if constexpr (Epilogue != TileEpilogue::kSums) {
      unrolled<kGroups>([&](auto group) TPU_INLINED {
        words[half][group] = _mm512_packs_epi32(results[0][group], results[1][group]);
        if constexpr (!includes_offset(Epilogue)) words[half][group] = halved(words[half][group], doubled_offset);
      });
    }
  });
  if constexpr (Epilogue != TileEpilogue::kSums) {
    const Limits limits{_mm512_set1_epi8(static_cast<char>(arguments.low)),
                        _mm512_set1_epi8(static_cast<char>(arguments.high))};
    unrolled<kGroups>([&](auto group) TPU_INLINED {
      __m512i bytes = clamp(_mm512_packus_epi16(words[0][group], words[1][group]), limits);
      if (arguments.lut != nullptr) bytes = look_up(arguments.lut, bytes);
      unrolled<kJoined>([&](auto part) TPU_INLINED {
        constexpr int pixel = decltype(group)::value * kJoined + decltype(part)::value;
        store_part<Width, decltype(part)::value>(
            arguments.outputs[pixel / Columns] + (x + pixel % Columns) * arguments.out_pixel, arguments.mask, bytes);
      });
    });
  }
}

template <int Width, int Stride, int Rows, TileEpilogue Epilogue>
void run_rows(const DepthwiseArguments& arguments) {
  constexpr int kKept = 3 - Stride;  // columns that the next result uses too
  RowLoader<Width, Rows> loader(arguments);
  Column<Width> inputs[Stride + 3];  // columns of two results
  unrolled<kKept>([&](auto i) TPU_INLINED { inputs[i] = loader.next(); });
  int x = 0;
  for (; x + 2 <= arguments.out_width; x += 2) {
    unrolled<2 * Stride>([&](auto i) TPU_INLINED { inputs[kKept + i] = loader.next(); });
    compute<Width, Stride, Rows, 2, Epilogue>(arguments, inputs, x);
    unrolled<kKept>([&](auto i) TPU_INLINED { inputs[i] = inputs[2 * Stride + i]; });
  }
  if (x < arguments.out_width) {
    unrolled<Stride>([&](auto i) TPU_INLINED { inputs[kKept + i] = loader.next(); });
    compute<Width, Stride, Rows, 1, Epilogue>(arguments, inputs, x);
  }
}

template <int Width, TileEpilogue Epilogue>
DepthwiseKernel with_stride(int stride, int rows) {
  if (stride == 2) return run_rows<Width, 2, 1, Epilogue>;
  if constexpr (Width != 64) return nullptr;  // depthwise_3x3_joined handles these widths
  return rows == 2 ? run_rows<Width, 1, 2, Epilogue> : run_rows<Width, 1, 1, Epilogue>;
}

template <TileEpilogue Epilogue>
DepthwiseKernel with_width(int width, int stride, int rows) {
  return width == 64   ? with_stride<64, Epilogue>(stride, rows)
         : width == 32 ? with_stride<32, Epilogue>(stride, rows)
                       : with_stride<16, Epilogue>(stride, rows);
}

}  // namespace

DepthwiseKernel depthwise_3x3(TileEpilogue epilogue, int width, int stride, int rows) {
  switch (epilogue) {
    case TileEpilogue::kSubnormal: return with_width<TileEpilogue::kSubnormal>(width, stride, rows);
    case TileEpilogue::kOneFactor: return with_width<TileEpilogue::kOneFactor>(width, stride, rows);
    case TileEpilogue::kTwoFactors: return with_width<TileEpilogue::kTwoFactors>(width, stride, rows);
    case TileEpilogue::kKinked: return with_width<TileEpilogue::kKinked>(width, stride, rows);
    case TileEpilogue::kWords:
    case TileEpilogue::kSums: break;
  }
  return with_width<TileEpilogue::kSums>(width, stride, rows);
}

}  // namespace tpuconvert::avx512

#endif
