// Packing for the 256-bit tiles. A panel has 16 columns: 0-3 and 8-11 in the first half, 4-7 and 12-15 in the second
// one.
#include <immintrin.h>

#include "int8/conv/panel_kernels.h"
#include "int8/matmul/matmul_packing.h"

namespace tpuconvert {
namespace {

using panels::kColumns;
using panels::kStepBytes;

__m256i load(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
void store(void* to, __m256i value) { _mm256_storeu_si256(static_cast<__m256i*>(to), value); }

__m128i load_row(const PackingTask& task, std::int64_t k, char otherwise) {
  if (k >= task.depth) return _mm_set1_epi8(otherwise);
  // May load up to 15 bytes after the last column. They belong to columns that are not stored.
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(task.right + k * task.row));
}

// Index of a column in panel order.
int position_of(int column) { return column / 4 % 2 * 8 + column / 8 * 4 + column % 4; }

// Writes biases in panel order. `constants` are in column order.
void write_biases(const PackingTask& task, __m256i first, __m256i second, std::int32_t* biases) {
  const __m256i low = load(task.constants), high = load(task.constants + 8);
  const __m256i zero = _mm256_set1_epi32(task.left_zero);
  store(biases, _mm256_sub_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_mullo_epi32(first, zero)));
  store(biases + 8, _mm256_sub_epi32(_mm256_permute2x128_si256(low, high, 0x31), _mm256_mullo_epi32(second, zero)));
}

__m256i sums_of_bytes(__m256i bytes) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

__m256i sums_of_words(__m256i words) { return _mm256_madd_epi16(words, _mm256_set1_epi16(1)); }

template <typename Sum>
void add_up(const PackingTask& task, std::int64_t steps, std::int32_t* biases, const Sum& sum) {
  __m256i first = _mm256_setzero_si256(), second = first;
  const std::uint8_t* weights = task.weights;
  for (std::int64_t step = 0; step < steps; ++step, weights += kStepBytes) {
    first = _mm256_add_epi32(first, sum(load(weights)));
    second = _mm256_add_epi32(second, sum(load(weights + 32)));
  }
  write_biases(task, first, second, biases);
}

void clear(const PackingTask& task, std::int64_t steps) {
  __builtin_memset(task.weights, 0, static_cast<std::size_t>(steps) * kStepBytes);
}

}  // namespace

void pack_matmul_bytes_avx2(const PackingTask& task, std::int32_t* biases) {
  const std::int64_t steps = (task.depth + 3) / 4;
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  if (task.column == 1) {
    std::uint8_t* weights = task.weights;
    for (std::int64_t k = 0; k < task.depth; k += 4, weights += kStepBytes) {
      const char none = static_cast<char>(0x80);
      const __m128i a = load_row(task, k, none), b = load_row(task, k + 1, none);
      const __m128i c = load_row(task, k + 2, none), d = load_row(task, k + 3, none);
      const __m256i lower = _mm256_set_m128i(_mm_unpackhi_epi8(a, b), _mm_unpacklo_epi8(a, b));
      const __m256i upper = _mm256_set_m128i(_mm_unpackhi_epi8(c, d), _mm_unpacklo_epi8(c, d));
      store(weights, _mm256_xor_si256(_mm256_unpacklo_epi16(lower, upper), flip));
      store(weights + 32, _mm256_xor_si256(_mm256_unpackhi_epi16(lower, upper), flip));
    }
  } else {
    clear(task, steps);
    for (int column = 0; column < task.columns; ++column) {
      const std::uint8_t* from = task.right + column * task.column;
      std::uint8_t* to = task.weights + 4 * position_of(column);
      std::int64_t k = 0;
      for (; k + 4 <= task.depth; k += 4, to += kStepBytes) {
        std::uint32_t quad;
        __builtin_memcpy(&quad, from + k, 4);
        quad ^= 0x80808080u;
        __builtin_memcpy(to, &quad, 4);
      }
      for (int i = 0; k + i < task.depth; ++i) to[i] = from[k + i] ^ 0x80;
    }
  }
  add_up(task, steps, biases, sums_of_bytes);
}

void pack_matmul_words_avx2(const PackingTask& task, int right_zero, std::int32_t* biases) {
  const std::int64_t steps = (task.depth + 1) / 2;
  if (task.column == 1) {
    const __m256i zero = _mm256_set1_epi16(static_cast<short>(right_zero));
    std::uint8_t* weights = task.weights;
    for (std::int64_t k = 0; k < task.depth; k += 2, weights += kStepBytes) {
      const __m128i a = load_row(task, k, 0), b = load_row(task, k + 1, static_cast<char>(right_zero));
      const __m256i first = _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)), zero);
      const __m256i second = _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b)), zero);
      store(weights, _mm256_permute2x128_si256(first, second, 0x20));
      store(weights + 32, _mm256_permute2x128_si256(first, second, 0x31));
    }
  } else {
    clear(task, steps);
    for (int column = 0; column < task.columns; ++column) {
      const std::uint8_t* from = task.right + column * task.column;
      std::uint8_t* to = task.weights + 4 * position_of(column);
      for (std::int64_t k = 0; k < task.depth; ++k) {
        const auto word = static_cast<std::int16_t>(from[k] - right_zero);
        __builtin_memcpy(to + k / 2 * kStepBytes + k % 2 * 2, &word, 2);
      }
    }
  }
  add_up(task, steps, biases, sums_of_words);
}

}  // namespace tpuconvert
