// Copies of a few input rows, for convolutions of few channels: with their padding, and in an order that leaves little of
// the segments of windows unused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/conv/interleave_columns.h"
#include "int8/conv/weight_rows.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

class Band {
 public:
  // The layout is one of copies.
  Band(const ConvInt8Spec& spec, const SegmentLayout& layout);

  int results() const { return results_; }  // rows of them that a band suffices for
  std::size_t bytes() const { return bytes_; }

  // Bytes from the window of a result to that of the next below, and from column to column.
  std::ptrdiff_t row_pitch() const { return row_pitch_; }
  std::ptrdiff_t column_pitch() const { return column_pitch_; }

  // Copies what is under `count` rows of results from `y` on into memory of bytes(). Where the first window begins.
  const std::uint8_t* copy(const std::uint8_t* image, int y, int count, std::uint8_t* memory) const;

 private:
  int input_rows(int results) const { return (results - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1; }
  std::size_t lines_at(int results) const;
  std::size_t bytes_of(int results) const;
  void copy_rows(const std::uint8_t* image, int y, int count, std::uint8_t* to) const;

  ConvGeometry g_;
  int zero_;
  bool has_lines_;  // rows are interleaved, in a line of columns for each row of results
  int columns_;     // under a row of results
  std::size_t row_bytes_;
  std::ptrdiff_t row_pitch_, column_pitch_;
  int results_ = 1;
  std::size_t bytes_;
  ColumnOrder order_{};
};

}  // namespace tpuconvert::avx512
