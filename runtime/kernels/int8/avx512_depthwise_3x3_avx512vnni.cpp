// 3x3 depthwise convolution. One result row needs three input rows, two need four: the fourth byte of every dword is the
// last row of the window of the second result row, and each of them has a zero weight where the other has its own tap.
// Two rows and two columns of results share loads, interleaving, weights and parameters.
#include "int8/avx512_depthwise.h"
#include "int8/avx512_depthwise_block.h"

namespace tpuconvert::avx512 {
namespace {

// Input rows, and the column that is loaded next.
template <int Width, int Rows>
class Reader {
 public:
  TPU_INLINE explicit Reader(const DepthwiseArguments& arguments)
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
      return interleaved<Width>(a, b, c, c);  // the weights of the fourth tap are zero
    }
  }

 private:
  const std::uint8_t* rows_[4];
  const std::uint8_t* padding_;
  std::ptrdiff_t offset_, end_, step_;
};

// Results of Columns neighbouring pixels from `x` on in Rows rows. Pixel p takes input columns p * Stride + 0..2.
template <int Width, int Stride, int Rows, int Columns, TileForm Form, int Inputs>
TPU_INLINE void compute(const DepthwiseArguments& arguments, const Column<Width> (&inputs)[Inputs], int x) {
  using B = Block<Width>;
  using Vector = typename B::Vector;
  constexpr int kPixels = Rows * Columns;
  constexpr std::size_t kVectorBytes = Width;
  __m512i words[2][kPixels];  // 16-bit results of two vectors each
  const __m512i doubled_offset = _mm512_set1_epi16(static_cast<short>(2 * arguments.offset + 1));
  unrolled<2>([&](auto half) TPU_INLINED {
    __m512i results[2][kPixels];
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
      unrolled<kPixels>([&](auto pixel) TPU_INLINED {
        if constexpr (Form == TileForm::kSums) {
          const int row = pixel / Columns, column = pixel % Columns;
          store_sums<Width>(arguments.sums + (row * arguments.out_width + x + column) * 64, B::widened(sums[pixel]), v);
        } else {
          results[which][pixel] = rescaled<Form>(B::widened(sums[pixel]), arguments.parameters[v]);
        }
      });
    });
    if constexpr (Form != TileForm::kSums) {
      unrolled<kPixels>([&](auto pixel) TPU_INLINED {
        words[half][pixel] = _mm512_packs_epi32(results[0][pixel], results[1][pixel]);
        if constexpr (Form != TileForm::kOneFactor) words[half][pixel] = halved(words[half][pixel], doubled_offset);
      });
    }
  });
  if constexpr (Form != TileForm::kSums) {
    const Limits limits{_mm512_set1_epi8(static_cast<char>(arguments.low)),
                        _mm512_set1_epi8(static_cast<char>(arguments.high))};
    unrolled<Rows>([&](auto row) TPU_INLINED {
      unrolled<Columns>([&](auto column) TPU_INLINED {
        constexpr int pixel = decltype(row)::value * Columns + decltype(column)::value;
        __m512i bytes = limited(_mm512_packus_epi16(words[0][pixel], words[1][pixel]), limits);
        if (arguments.lut != nullptr) bytes = looked_up(arguments.lut, bytes);
        B::store(arguments.outputs[row] + (x + column) * arguments.out_pixel, arguments.mask, bytes);
      });
    });
  }
}

template <int Width, int Stride, int Rows, TileForm Form>
void run_rows(const DepthwiseArguments& arguments) {
  constexpr int kKept = 3 - Stride;  // columns that the next result needs again
  Reader<Width, Rows> reader(arguments);
  Column<Width> inputs[Stride + 3];  // under two results
  unrolled<kKept>([&](auto i) TPU_INLINED { inputs[i] = reader.next(); });
  int x = 0;
  for (; x + 2 <= arguments.out_width; x += 2) {
    unrolled<2 * Stride>([&](auto i) TPU_INLINED { inputs[kKept + i] = reader.next(); });
    compute<Width, Stride, Rows, 2, Form>(arguments, inputs, x);
    unrolled<kKept>([&](auto i) TPU_INLINED { inputs[i] = inputs[2 * Stride + i]; });
  }
  if (x < arguments.out_width) {
    unrolled<Stride>([&](auto i) TPU_INLINED { inputs[kKept + i] = reader.next(); });
    compute<Width, Stride, Rows, 1, Form>(arguments, inputs, x);
  }
}

template <int Width, TileForm Form>
DepthwiseKernel with_stride(int stride, int rows) {
  if (stride == 2) return run_rows<Width, 2, 1, Form>;
  return rows == 2 ? run_rows<Width, 1, 2, Form> : run_rows<Width, 1, 1, Form>;
}

template <TileForm Form>
DepthwiseKernel with_width(int width, int stride, int rows) {
  return width == 64   ? with_stride<64, Form>(stride, rows)
         : width == 32 ? with_stride<32, Form>(stride, rows)
                       : with_stride<16, Form>(stride, rows);
}

}  // namespace

DepthwiseKernel depthwise_3x3(TileForm form, int width, int stride, int rows) {
  switch (form) {
    case TileForm::kOneFactor: return with_width<TileForm::kOneFactor>(width, stride, rows);
    case TileForm::kTwoFactors: return with_width<TileForm::kTwoFactors>(width, stride, rows);
    case TileForm::kKinked: return with_width<TileForm::kKinked>(width, stride, rows);
    case TileForm::kSums: break;
  }
  return with_width<TileForm::kSums>(width, stride, rows);
}

}  // namespace tpuconvert::avx512
