// Transposition of matrices of 8-, 16- and 32-bit elements, by tiles that fit the registers of every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tpuconvert {

// Extents of a source matrix with adjacent elements, and distances in bytes between the rows of the source and of the
// transposed target.
struct Transposition {
  std::int64_t rows = 0, columns = 0;
  std::ptrdiff_t from_row = 0, to_row = 0;
};

namespace transposing {

template <typename T>
struct Tile {
  static constexpr int kSide = 16 / static_cast<int>(sizeof(T));
  typedef T Vector __attribute__((vector_size(16)));
};

template <typename T>
inline typename Tile<T>::Vector low_halves(typename Tile<T>::Vector a, typename Tile<T>::Vector b);
template <typename T>
inline typename Tile<T>::Vector high_halves(typename Tile<T>::Vector a, typename Tile<T>::Vector b);

template <>
inline Tile<std::uint8_t>::Vector low_halves<std::uint8_t>(Tile<std::uint8_t>::Vector a, Tile<std::uint8_t>::Vector b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
template <>
inline Tile<std::uint8_t>::Vector high_halves<std::uint8_t>(Tile<std::uint8_t>::Vector a, Tile<std::uint8_t>::Vector b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
template <>
inline Tile<std::uint16_t>::Vector low_halves<std::uint16_t>(Tile<std::uint16_t>::Vector a,
                                                             Tile<std::uint16_t>::Vector b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
template <>
inline Tile<std::uint16_t>::Vector high_halves<std::uint16_t>(Tile<std::uint16_t>::Vector a,
                                                              Tile<std::uint16_t>::Vector b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
template <>
inline Tile<std::uint32_t>::Vector low_halves<std::uint32_t>(Tile<std::uint32_t>::Vector a,
                                                             Tile<std::uint32_t>::Vector b) {
  return __builtin_shufflevector(a, b, 0, 4, 1, 5);
}
template <>
inline Tile<std::uint32_t>::Vector high_halves<std::uint32_t>(Tile<std::uint32_t>::Vector a,
                                                              Tile<std::uint32_t>::Vector b) {
  return __builtin_shufflevector(a, b, 2, 6, 3, 7);
}

// Transposes one square tile: log2(side) passes, each of which interleaves row i with row i + side / 2.
template <typename T>
inline void tile(const std::uint8_t* from, std::ptrdiff_t from_row, std::uint8_t* to, std::ptrdiff_t to_row, T flip) {
  using Vector = typename Tile<T>::Vector;
  constexpr int kSide = Tile<T>::kSide;
  Vector rows[kSide], mixed[kSide];
  for (int row = 0; row < kSide; ++row) std::memcpy(&rows[row], from + row * from_row, 16);
  for (int step = 1; step < kSide; step *= 2) {
    for (int row = 0; row < kSide / 2; ++row) {
      mixed[2 * row] = low_halves<T>(rows[row], rows[row + kSide / 2]);
      mixed[2 * row + 1] = high_halves<T>(rows[row], rows[row + kSide / 2]);
    }
    for (int row = 0; row < kSide; ++row) rows[row] = mixed[row];
  }
  for (int row = 0; row < kSide; ++row) {
    const Vector flipped = rows[row] ^ flip;
    std::memcpy(to + row * to_row, &flipped, 16);
  }
}

template <typename T>
inline void elements(const std::uint8_t* from, std::ptrdiff_t from_row, std::uint8_t* to, std::ptrdiff_t to_row,
                     std::int64_t rows, std::int64_t columns, T flip) {
  for (std::int64_t column = 0; column < columns; ++column)
    for (std::int64_t row = 0; row < rows; ++row) {
      T value;
      std::memcpy(&value, from + row * from_row + column * static_cast<std::ptrdiff_t>(sizeof(T)), sizeof(T));
      value = static_cast<T>(value ^ flip);
      std::memcpy(to + column * to_row + row * static_cast<std::ptrdiff_t>(sizeof(T)), &value, sizeof(T));
    }
}

// Transposes a few rows (the channels of an image), writing complete result rows.
template <typename T, int kRows>
inline void few_rows(const std::uint8_t* from, std::uint8_t* to, const Transposition& shape, T flip) {
  const T* rows[kRows];
  for (int row = 0; row < kRows; ++row) rows[row] = reinterpret_cast<const T*>(from + row * shape.from_row);
  const std::int64_t columns = shape.columns;
  if (shape.to_row == static_cast<std::ptrdiff_t>(kRows * sizeof(T))) {
    T* __restrict target = reinterpret_cast<T*>(to);
    for (std::int64_t column = 0; column < columns; ++column)
      for (int row = 0; row < kRows; ++row) target[column * kRows + row] = static_cast<T>(rows[row][column] ^ flip);
    return;
  }
  for (std::int64_t column = 0; column < columns; ++column) {
    T* target = reinterpret_cast<T*>(to + column * shape.to_row);
    for (int row = 0; row < kRows; ++row) target[row] = static_cast<T>(rows[row][column] ^ flip);
  }
}

}  // namespace transposing

template <typename T>
void transpose(const std::uint8_t* from, std::uint8_t* to, const Transposition& shape, T flip) {
  constexpr int kSide = transposing::Tile<T>::kSide;
  constexpr auto kSize = static_cast<std::ptrdiff_t>(sizeof(T));
  if (shape.rows == 2) return transposing::few_rows<T, 2>(from, to, shape, flip);
  if (shape.rows == 3) return transposing::few_rows<T, 3>(from, to, shape, flip);
  if (shape.rows == 4) return transposing::few_rows<T, 4>(from, to, shape, flip);
  const std::int64_t whole_rows = shape.rows / kSide * kSide, whole_columns = shape.columns / kSide * kSide;
  // Strips of 64 bytes of every row, so that a fetched cache line is fully used before it is evicted.
  const std::int64_t strip = 64 / kSize;
  for (std::int64_t first = 0; first < whole_columns; first += strip) {
    const std::int64_t end = first + strip < whole_columns ? first + strip : whole_columns;
    for (std::int64_t row = 0; row < whole_rows; row += kSide)
      for (std::int64_t column = first; column < end; column += kSide)
        transposing::tile<T>(from + row * shape.from_row + column * kSize, shape.from_row,
                             to + column * shape.to_row + row * kSize, shape.to_row, flip);
  }
  transposing::elements<T>(from + whole_rows * shape.from_row, shape.from_row, to + whole_rows * kSize, shape.to_row,
                           shape.rows - whole_rows, whole_columns, flip);
  transposing::elements<T>(from + whole_columns * kSize, shape.from_row, to + whole_columns * shape.to_row, shape.to_row,
                           shape.rows, shape.columns - whole_columns, flip);
}

}  // namespace tpuconvert
