// Rows of few channels, interleaved column by column.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it holds plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kColumnBytes = 64;  // the most that a column of all rows may have

// Permutation of `rows` rows of pixels with `pixel_bytes` bytes into columns: [column][row][pixel_bytes], as many columns at once as
// a vector holds.
struct alignas(64) ColumnOrder {
  std::uint8_t index[kColumnBytes][kColumnBytes];  // [row]: the bytes of this row that a vector takes
  std::uint64_t mask[kColumnBytes];                // and where it takes them
  int rows, pixel_bytes;

  int columns_at_once() const { return kColumnBytes / (rows * pixel_bytes); }
};

// rows * pixel_bytes <= kColumnBytes
ColumnOrder column_order(int rows, int pixel_bytes);

// Writes up to 63 bytes after the last column, and reads as many after the rows.
void interleave_columns(const ColumnOrder& order, const std::uint8_t* first_row, std::ptrdiff_t row_pitch, int columns,
                        std::uint8_t* to);

}  // namespace tpuconvert::avx512
