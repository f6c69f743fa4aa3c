#if defined(__x86_64__)

#include <immintrin.h>

#include "int8/conv/interleave_columns.h"

namespace tpuconvert::avx512 {
namespace {

constexpr int kRowsInRegisters = 8;

// Loads 16, 32 or 64 bytes.
template <int Bytes>
inline __attribute__((always_inline)) __m512i load(const std::uint8_t* from) {
  if constexpr (Bytes == 16) {
    return _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i_u*>(from)));
  } else if constexpr (Bytes == 32) {
    return _mm512_castsi256_si512(_mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from)));
  } else {
    return _mm512_loadu_si512(from);
  }
}

// Interleaves `Rows` rows, or order.rows if Rows is 0.
template <int Rows, int Bytes>
void interleave(const ColumnOrder& order, const std::uint8_t* first_row, std::ptrdiff_t row_pitch, int columns,
                std::uint8_t* to) {
  __m512i index[kRowsInRegisters];
  __mmask64 mask[kRowsInRegisters];
#pragma GCC unroll 8
  for (int row = 0; row < Rows; ++row) {
    index[row] = _mm512_load_si512(order.index[row]);
    mask[row] = order.mask[row];
  }
  const int at_once = order.columns_at_once();
  for (int column = 0; column < columns; column += at_once) {
    __m512i bytes = _mm512_setzero_si512();
    const std::uint8_t* from = first_row + column * order.pixel_bytes;
    if constexpr (Rows != 0) {
#pragma GCC unroll 8
      for (int row = 0; row < Rows; ++row, from += row_pitch)
        bytes = _mm512_mask_permutexvar_epi8(bytes, mask[row], index[row], load<Bytes>(from));
    } else {
      for (int row = 0; row < order.rows; ++row, from += row_pitch)
        bytes = _mm512_mask_permutexvar_epi8(bytes, order.mask[row], _mm512_load_si512(order.index[row]),
                                             load<Bytes>(from));
    }
    _mm512_storeu_si512(to, bytes);
    to += at_once * order.rows * order.pixel_bytes;
  }
}

template <int Bytes>
void interleave(const ColumnOrder& order, const std::uint8_t* first_row, std::ptrdiff_t row_pitch, int columns,
                std::uint8_t* to) {
  switch (order.rows) {
    case 3: return interleave<3, Bytes>(order, first_row, row_pitch, columns, to);
    case 5: return interleave<5, Bytes>(order, first_row, row_pitch, columns, to);
    case 7: return interleave<7, Bytes>(order, first_row, row_pitch, columns, to);
    default: return interleave<0, Bytes>(order, first_row, row_pitch, columns, to);
  }
}

}  // namespace

ColumnOrder column_order(int rows, int pixel_bytes) {
  ColumnOrder order{};
  order.rows = rows;
  order.pixel_bytes = pixel_bytes;
  int at = 0;
  for (int column = 0; column < order.columns_at_once(); ++column)
    for (int row = 0; row < rows; ++row)
      for (int byte = 0; byte < pixel_bytes; ++byte, ++at) {
        order.index[row][at] = static_cast<std::uint8_t>(column * pixel_bytes + byte);
        order.mask[row] |= std::uint64_t{1} << at;
      }
  return order;
}

void interleave_columns(const ColumnOrder& order, const std::uint8_t* first_row, std::ptrdiff_t row_pitch, int columns,
                        std::uint8_t* to) {
  const int bytes = order.columns_at_once() * order.pixel_bytes;
  if (bytes <= 16) return interleave<16>(order, first_row, row_pitch, columns, to);
  if (bytes <= 32) return interleave<32>(order, first_row, row_pitch, columns, to);
  return interleave<64>(order, first_row, row_pitch, columns, to);
}

}  // namespace tpuconvert::avx512

#endif
