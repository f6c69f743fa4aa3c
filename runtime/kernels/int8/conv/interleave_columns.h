// Interleaving of image rows with few channels: pixels of one column become adjacent.
//
// Included by files compiled for AVX512 as well as by baseline ones, so it contains plain data only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tpuconvert::avx512 {

constexpr int kColumnBytes = 64;  // maximum size of a column of all rows

// Permutation of `rows` rows with pixels of `pixel_bytes` bytes to [column][row][pixel_bytes]. It handles as many
// columns at once as a vector can store.
struct alignas(64) ColumnOrder {
  std::uint8_t index[kColumnBytes][kColumnBytes];  // [row][byte]: source byte of this row
  std::uint64_t mask[kColumnBytes];                // [row]: bytes of the vector that come from this row
  int rows, pixel_bytes;

  int columns_at_once() const { return kColumnBytes / (rows * pixel_bytes); }
};

// Requires rows * pixel_bytes <= kColumnBytes.
ColumnOrder column_order(int rows, int pixel_bytes);

// Writes up to 63 bytes after the last column, and reads up to 63 bytes after the rows.
void interleave_columns(const ColumnOrder& order, const std::uint8_t* first_row, std::ptrdiff_t row_pitch, int columns,
                        std::uint8_t* to);

}  // namespace tpuconvert::avx512
