// Where the bytes under each result of a convolution lie: addresses of the segments of its window, in the input, in a
// row of padding, or in a padded copy of a few input rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/aligned.h"
#include "int8/avx512_packing.h"
#include "int8/avx512_walk.h"
#include "int8/conv_int8.h"

namespace tpuconvert::avx512 {

constexpr int kMaxRows = 12;  // of a tile

struct Segments {
  std::size_t count;
  std::size_t bytes;  // of each
};

class Windows {
 public:
  Windows(const ConvInt8Spec& spec, const SegmentLayout& layout);

  // Of the array that `place` writes, a multiple of 64.
  std::size_t address_bytes() const;

  // The walk over results from `index` on, among those of all images. With a padded copy, `at.input` is a band that
  // begins with the input rows of the row of that result.
  void begin(const ConvAddresses& at, std::int64_t index, Walk* walk) const;

  // Addresses of the segments under the next `rows` results, [segment][row].
  Segments place(const Walk& walk, int rows, const std::uint8_t** inputs) const;

  // The walk `rows` results further on.
  void advance(const Walk& from, int rows, Walk* to) const { walk_on(shape_, from, rows, to); }

  // For layouts of padded rows: how many result rows a band suffices for, and its size (0 for other layouts).
  int band_rows() const { return band_rows_; }
  std::size_t band_bytes() const { return band_bytes_; }

  // Copies the input rows under `count` result rows from `y` on, with the padding around them.
  void copy_band(const std::uint8_t* image, int y, int count, std::uint8_t* band) const;

  std::size_t bytes() const { return padding_.size(); }

 private:
  bool needs_no_padding() const;

  ConvGeometry g_;
  SegmentLayout layout_;
  int zero_;
  WalkShape shape_{};
  AlignedBytes padding_;  // the longest segment of pixels outside of the image
  std::size_t band_row_bytes_ = 0;
  int band_rows_ = 0;
  std::size_t band_bytes_ = 0;
};

}  // namespace tpuconvert::avx512
