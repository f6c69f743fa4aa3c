// Padded copies of a few input rows for convolutions with few channels. Their memory order makes window segments
// longer, so that fewer bytes of the segments are unused.
#pragma once

#include <cstddef>
#include <cstdint>

#include "int8/conv/interleave_columns.h"
#include "int8/conv/weight_rows.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

class Band {
 public:
  // Requires layout.is_copied(). A band has at most `limit` bytes, or one row of results.
  Band(const ConvInt8Spec& spec, const SegmentLayout& layout, std::size_t limit);

  int results() const { return results_; }  // rows of results that fit one band
  std::size_t bytes() const { return bytes_; }

  int columns() const { return columns_; }  // padded input columns

  // Bytes from the window of a result to that of the result below, and from one input column to the next.
  std::ptrdiff_t row_pitch() const { return row_pitch_; }
  std::ptrdiff_t column_pitch() const { return column_pitch_; }

  // Copies the input of `count` rows of results, starting with row `y`, to `memory`, which has bytes() bytes. Returns
  // the start of the first window.
  const std::uint8_t* copy(const std::uint8_t* image, int y, int count, std::uint8_t* memory) const;

 private:
  int input_rows(int results) const { return (results - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1; }
  std::size_t lines_at(int results) const;
  std::size_t bytes_of(int results) const;
  void copy_rows(const std::uint8_t* image, int y, int count, std::uint8_t* to) const;

  ConvGeometry g_;
  int zero_;
  bool has_lines_;  // interleaves input rows: one line of columns per row of results
  int columns_;     // padded input columns that a row of results reads
  std::size_t row_bytes_;
  std::ptrdiff_t row_pitch_, column_pitch_;
  int results_ = 1;
  std::size_t bytes_;
  ColumnOrder order_{};
};

}  // namespace tpuconvert::avx512
