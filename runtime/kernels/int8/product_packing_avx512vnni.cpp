// Packing for the AVX512-VNNI tiles: four neighbours along the depth to a dword, 16 columns to a register.
#include "int8/avx512_lanes.h"
#include "int8/product_packing.h"

namespace tpuconvert {
namespace {

using avx512::unrolled;

constexpr int kLanes = avx512::kLanes;
constexpr int kQuads = 16;  // groups of four that a register holds

TPU_INLINE __mmask64 first_bytes(std::int64_t count) {
  return count >= 64 ? ~__mmask64{0} : count <= 0 ? 0 : (__mmask64{1} << count) - 1;
}

// Stored bytes minus 128, and 0 where the mask has no bit.
TPU_INLINE __m512i signed_bytes(const std::uint8_t* from, __mmask64 mask) {
  return _mm512_maskz_sub_epi8(mask, _mm512_maskz_loadu_epi8(mask, from), _mm512_set1_epi8(static_cast<char>(0x80)));
}

// Sums of the four bytes of every dword, added to `sums`.
TPU_INLINE void add_quads(__m512i& sums, __m512i bytes) { avx512::dot(sums, _mm512_set1_epi8(1), bytes); }

TPU_INLINE void write_biases(const PackingTask& task, int first, __m512i sums, std::int32_t* biases) {
  const __m512i share = _mm512_mullo_epi32(sums, _mm512_set1_epi32(task.left_zero));
  _mm512_storeu_si512(biases, _mm512_sub_epi32(_mm512_loadu_si512(task.constants + first), share));
}

// 16 rows of 16 dwords become columns, in place.
TPU_INLINE void transpose(__m512i (&x)[16]) {
  __m512i y[16];
  unrolled<8>([&](auto i) TPU_INLINED {
    y[2 * i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
    y[2 * i + 1] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
  });
  unrolled<4>([&](auto i) TPU_INLINED {
    x[4 * i] = _mm512_unpacklo_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 1] = _mm512_unpackhi_epi64(y[4 * i], y[4 * i + 2]);
    x[4 * i + 2] = _mm512_unpacklo_epi64(y[4 * i + 1], y[4 * i + 3]);
    x[4 * i + 3] = _mm512_unpackhi_epi64(y[4 * i + 1], y[4 * i + 3]);
  });
  // x[4 * i + j] has in 128-bit lane l dword 4 * l + j of rows 4 * i .. 4 * i + 3.
  unrolled<4>([&](auto j) TPU_INLINED {
    const __m512i a = _mm512_shuffle_i32x4(x[j], x[4 + j], 0x88), b = _mm512_shuffle_i32x4(x[j], x[4 + j], 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0x88), d = _mm512_shuffle_i32x4(x[8 + j], x[12 + j], 0xDD);
    y[j] = _mm512_shuffle_i32x4(a, c, 0x88);
    y[4 + j] = _mm512_shuffle_i32x4(b, d, 0x88);
    y[8 + j] = _mm512_shuffle_i32x4(a, c, 0xDD);
    y[12 + j] = _mm512_shuffle_i32x4(b, d, 0xDD);
  });
  unrolled<16>([&](auto i) TPU_INLINED { x[i] = y[i]; });
}

// Elements are adjacent along the depth: a register of every column, transposed.
void pack_columns(const PackingTask& task, int first, int width, std::uint8_t* weights, std::size_t step_bytes,
                  std::int32_t* biases) {
  __m512i sums = _mm512_setzero_si512();
  const int columns = task.columns - first;
  const std::uint8_t* right = task.right + first * task.column;
  const std::int64_t quads = (task.depth + 3) / 4;
  const __mmask16 stored = static_cast<__mmask16>((1u << width) - 1);
  for (std::int64_t quad = 0; quad < quads; quad += kQuads) {
    const __mmask64 mask = first_bytes(task.depth - 4 * quad);
    __m512i x[16];
    unrolled<16>([&](auto i) TPU_INLINED {
      x[i] = i < columns ? signed_bytes(right + i * task.column + 4 * quad, mask) : _mm512_setzero_si512();
    });
    transpose(x);
    unrolled<16>([&](auto i) TPU_INLINED {
      if (quad + i < quads) {
        add_quads(sums, x[i]);
        _mm512_mask_storeu_epi32(weights + static_cast<std::size_t>(quad + i) * step_bytes, stored, x[i]);
      }
    });
  }
  write_biases(task, first, sums, biases);
}

// Elements are adjacent along the columns: four rows of 64 columns interleaved.
template <int Accumulators>
void pack_rows(const PackingTask& task, bool half, std::int32_t* biases, std::ptrdiff_t bias_stride) {
  constexpr int kFull = Accumulators;  // with the half one
  const std::size_t step_bytes = static_cast<std::size_t>(64 * kFull - (half ? 32 : 0));
  const __mmask64 mask = first_bytes(task.columns);
  __m512i sums[kFull];
  unrolled<kFull>([&](auto i) TPU_INLINED { sums[i] = _mm512_setzero_si512(); });
  std::uint8_t* weights = task.weights;
  const std::uint8_t* right = task.right;
  for (std::int64_t k = 0; k < task.depth; k += 4, right += 4 * task.row, weights += step_bytes) {
    __m512i rows[4];
    unrolled<4>([&](auto i) TPU_INLINED {
      rows[i] = k + i < task.depth ? signed_bytes(right + i * task.row, mask) : _mm512_setzero_si512();
    });
    const __m512i low01 = _mm512_unpacklo_epi8(rows[0], rows[1]), high01 = _mm512_unpackhi_epi8(rows[0], rows[1]);
    const __m512i low23 = _mm512_unpacklo_epi8(rows[2], rows[3]), high23 = _mm512_unpackhi_epi8(rows[2], rows[3]);
    // Of x[j], 128-bit lane l has columns 16 * l + 4 * j .. + 3.
    const __m512i x0 = _mm512_unpacklo_epi16(low01, low23), x1 = _mm512_unpackhi_epi16(low01, low23);
    const __m512i x2 = _mm512_unpacklo_epi16(high01, high23), x3 = _mm512_unpackhi_epi16(high01, high23);
    const __m512i a = _mm512_shuffle_i32x4(x0, x1, 0x88), b = _mm512_shuffle_i32x4(x0, x1, 0xDD);
    const __m512i c = _mm512_shuffle_i32x4(x2, x3, 0x88), d = _mm512_shuffle_i32x4(x2, x3, 0xDD);
    const __m512i y[4] = {_mm512_shuffle_i32x4(a, c, 0x88), _mm512_shuffle_i32x4(b, d, 0x88),
                          _mm512_shuffle_i32x4(a, c, 0xDD), _mm512_shuffle_i32x4(b, d, 0xDD)};
    unrolled<kFull>([&](auto i) TPU_INLINED {
      add_quads(sums[i], y[i]);
      if (i == kFull - 1 && half) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(weights + 64 * i), _mm512_castsi512_si256(y[i]));
      } else {
        _mm512_storeu_si512(weights + 64 * i, y[i]);
      }
    });
  }
  unrolled<kFull>([&](auto i) TPU_INLINED { write_biases(task, i * kLanes, sums[i], biases + i * bias_stride); });
}

}  // namespace

void pack_product_avx512vnni(const PackingTask& task, int full, bool half, std::int32_t* biases,
                             std::ptrdiff_t bias_stride) {
  const int accumulators = full + (half ? 1 : 0);
  if (task.column == 1) {
    switch (accumulators) {
      case 1: return pack_rows<1>(task, half, biases, bias_stride);
      case 2: return pack_rows<2>(task, half, biases, bias_stride);
      case 3: return pack_rows<3>(task, half, biases, bias_stride);
      default: return pack_rows<4>(task, half, biases, bias_stride);
    }
  }
  const std::size_t step_bytes = static_cast<std::size_t>(64 * full + (half ? 32 : 0));
  for (int i = 0; i < accumulators; ++i)
    pack_columns(task, i * kLanes, i < full ? kLanes : kLanes / 2, task.weights + 64 * i, step_bytes,
                 biases + i * bias_stride);
}

}  // namespace tpuconvert
