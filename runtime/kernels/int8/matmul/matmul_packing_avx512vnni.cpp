// Packing for the AVX512-VNNI tiles: a dword contains four adjacent elements along the depth, a register 16 columns.
#include "int8/tile/transpose.h"
#include "int8/matmul/matmul_packing.h"

namespace tpuconvert {
namespace {

using avx512::add_quads;
using avx512::first_bytes;
using avx512::interleave;
using avx512::store_accumulator;
using avx512::transpose;
using avx512::unrolled;

constexpr int kLanes = avx512::kLanes;
constexpr int kQuads = 16;  // groups of four elements in one register

// Loads stored bytes minus 128; 0 where the mask bit is clear.
TPU_INLINE __m512i signed_bytes(const std::uint8_t* from, __mmask64 mask) {
  return avx512::bytes_without(_mm512_set1_epi8(static_cast<char>(0x80)), from, mask);
}

TPU_INLINE void write_biases(const PackingTask& task, int first, __m512i sums, std::int32_t* biases) {
  const __m512i share = _mm512_mullo_epi32(sums, _mm512_set1_epi32(task.left_zero));
  _mm512_storeu_si512(biases, _mm512_sub_epi32(_mm512_loadu_si512(task.constants + first), share));
}

// Packs an operand with adjacent elements along the depth: loads a register per column and transposes.
void pack_columns(const PackingTask& task, int accumulator, int full, int width, std::uint8_t* weights,
                  std::size_t step_bytes, std::int32_t* biases) {
  const avx512::Columns columns(accumulator, full);
  __m512i sums = _mm512_setzero_si512();
  const std::int64_t quads = (task.depth + 3) / 4;
  const __mmask16 stored = static_cast<__mmask16>((1u << width) - 1);
  for (std::int64_t quad = 0; quad < quads; quad += kQuads) {
    const __mmask64 mask = first_bytes(task.depth - 4 * quad);
    __m512i x[16];
    unrolled<16>([&](auto i) TPU_INLINED {
      const int column = columns.of(i);
      x[i] = column < task.columns ? signed_bytes(task.right + column * task.column + 4 * quad, mask)
                                   : _mm512_setzero_si512();
    });
    transpose(x);
    unrolled<16>([&](auto i) TPU_INLINED {
      if (quad + i < quads) {
        add_quads(sums, x[i]);
        _mm512_mask_storeu_epi32(weights + static_cast<std::size_t>(quad + i) * step_bytes, stored, x[i]);
      }
    });
  }
  write_biases(task, accumulator * kLanes, sums, biases);
}

// Packs an operand with adjacent elements along the columns: interleaves four rows of 64 columns.
template <int Accumulators>
void pack_rows(const PackingTask& task, bool half, std::int32_t* biases, std::ptrdiff_t bias_stride) {
  constexpr int kFull = Accumulators;  // includes the half accumulator
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
    interleave<Accumulators != 4>(rows);
    unrolled<kFull>([&](auto i) TPU_INLINED {
      add_quads(sums[i], rows[i]);
      store_accumulator(weights + 64 * i, half && i == kFull - 1, rows[i]);
    });
  }
  unrolled<kFull>([&](auto i) TPU_INLINED { write_biases(task, i * kLanes, sums[i], biases + i * bias_stride); });
}

}  // namespace

void pack_matmul_avx512vnni(const PackingTask& task, int full, bool half, std::int32_t* biases,
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
    pack_columns(task, i, full, i < full ? kLanes : kLanes / 2, task.weights + 64 * i, step_bytes,
                 biases + i * bias_stride);
}

}  // namespace tpuconvert
