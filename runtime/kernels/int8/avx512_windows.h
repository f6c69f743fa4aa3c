// Where the bytes under each result of a convolution lie: addresses of the segments of its window, in the input, in a
// row of padding, or in a padded copy of a few input rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/aligned.h"
#include "int8/avx512_packing.h"
#include "int8/conv_int8.h"

namespace tpuconvert::avx512 {

constexpr int kMaxRows = 12;  // of a tile

// A result among those of all images.
struct Position {
  std::int64_t image;
  int y, x;
};

struct Segments {
  std::size_t count;
  std::size_t bytes;  // of each
};

class Windows {
 public:
  Windows(const ConvInt8Spec& spec, const SegmentLayout& layout);

  // Of the array that `place` writes, rounded up to 64.
  std::size_t address_bytes() const;

  Position position_of(std::int64_t index) const;

  // Addresses of the next `rows` results and, [segment][row], of the segments under them; moves `position` on. With a
  // padded copy, `input` is a band that begins with the rows of result row `band_y`.
  Segments place(const std::uint8_t* input, std::uint8_t* output, int rows, int band_y, Position* position,
                 const std::uint8_t** inputs, std::uint8_t** outputs) const;

  // For layouts of padded rows: how many result rows a band suffices for, and its size (0 for other layouts).
  int band_rows() const { return band_rows_; }
  std::size_t band_bytes() const { return band_bytes_; }

  // Copies the input rows under `count` result rows from `y` on, with the padding around them.
  void copy_band(const std::uint8_t* image, int y, int count, std::uint8_t* band) const;

  std::size_t bytes() const { return padding_.size(); }

 private:
  // Neighbouring results of one row, from `begin` on among those of a tile.
  struct Stretch {
    int begin, end;
    int top, left;  // input position of the first tap
  };

  bool needs_no_padding() const;
  void advance(Position* position, int count) const;
  std::ptrdiff_t tap_step(int y, int x) const;
  int place_kernel_rows(int rows, std::ptrdiff_t step, const std::uint8_t** to) const;
  int place_kernel_rows_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const;
  int place_taps(int rows, const std::uint8_t** to) const;
  int place_taps_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const;

  ConvGeometry g_;
  SegmentLayout layout_;
  int zero_;
  bool joins_taps_;             // a row of the kernel lies without gaps in the input: one segment
  std::ptrdiff_t column_step_;  // bytes of the input from result to result of a row
  AlignedBytes padding_;        // the longest segment of pixels outside of the image
  std::size_t band_row_bytes_ = 0;
  int band_rows_ = 0;
  std::size_t band_bytes_ = 0;
};

}  // namespace tpuconvert::avx512
