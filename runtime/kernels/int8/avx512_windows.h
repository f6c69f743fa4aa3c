// Where the bytes under each result of a convolution lie: addresses of the segments of its window, in the input, in a
// row of padding, or in a padded copy of a few input rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/aligned.h"
#include "int8/avx512_packing.h"
#include "int8/avx512_regions.h"
#include "int8/avx512_walk.h"
#include "int8/conv_int8.h"

namespace tpuconvert::avx512 {

constexpr int kMaxRows = 12;  // of a tile

struct Segments {
  std::size_t count;
  std::size_t bytes;           // of each
  const std::uint32_t* skips;  // [count], see TileArguments
};

// A region of results and how to walk over it. Results are counted from its corner on.
class RegionWindows {
 public:
  RegionWindows(const ConvInt8Spec& spec, const SegmentLayout& layout, const Region& region, bool can_leave,
                std::ptrdiff_t row_pitch, std::ptrdiff_t pixel_pitch, const std::uint8_t* padding);

  const Region& region() const { return region_; }
  std::int64_t results() const { return std::int64_t{batch_} * region_.height * region_.width; }

  // Whether results that follow each other here do so in the whole, too.
  bool is_in_one_piece() const { return is_in_one_piece_; }

  // Whether windows are one segment each, and they, results and counterparts follow each other at even distances: those
  // of windows and results are given by the steps, and those of the counterparts are the ones of the results.
  bool is_even() const;
  std::ptrdiff_t input_step() const { return shape_.input.result; }
  std::ptrdiff_t output_step() const { return shape_.output.result; }

  // Steps of 4 bytes before the weights of the first tap.
  std::size_t first_step() const { return first_step_; }

  // Of every tap of the kernel that this region leaves out.
  template <typename Body>
  void for_missing_taps(Body&& body) const {
    for (int tap = 0; tap < kernel_h_ * kernel_w_; ++tap) {
      const int y = tap / kernel_w_ - region_.tap_y, x = tap % kernel_w_ - region_.tap_x;
      if (y < 0 || y >= region_.taps_h || x < 0 || x >= region_.taps_w) body(tap);
    }
  }

  // The walk over results from `index` on, among those of all images. With a padded copy, `at.input` is a band that
  // begins with the input rows of the row of that result.
  void begin(const ConvAddresses& at, std::int64_t index, Walk* walk) const;

  // Addresses of the segments under the next `rows` results, [segment][row].
  Segments place(const Walk& walk, int rows, const std::uint8_t** inputs) const;

  // The walk `rows` results further on.
  void advance(const Walk& from, int rows, Walk* to) const { walk_on(shape_, from, rows, to); }

 private:
  Region region_;
  int batch_, kernel_h_, kernel_w_;
  bool is_band_, is_in_one_piece_;
  int copies_;
  std::size_t segment_bytes_;
  std::ptrdiff_t corner_;         // from the input to the first tap of the first result
  std::ptrdiff_t output_corner_;
  std::ptrdiff_t other_corner_;
  bool has_other_;
  WalkShape shape_{};
  std::size_t first_step_;
  std::vector<std::uint32_t> tap_skips_, line_skips_;
};

class Windows {
 public:
  Windows(const ConvInt8Spec& spec, const SegmentLayout& layout, const TileCosts& costs);

  // Of the array that `place` writes, a multiple of 64.
  std::size_t address_bytes() const;

  const std::vector<RegionWindows>& regions() const { return regions_; }

  // Whether results that follow each other in any region do so in the whole, too.
  bool are_regions_in_one_piece() const;

  // For layouts of padded rows: how many result rows a band suffices for, and its size (0 for other layouts).
  int band_rows() const { return band_rows_; }
  std::size_t band_bytes() const { return band_bytes_; }

  // Copies the input rows under `count` result rows from `y` on, with the padding around them.
  void copy_band(const std::uint8_t* image, int y, int count, std::uint8_t* band) const;

  // The longest segment of pixels outside of the image; null where windows cannot leave it.
  const std::uint8_t* padding() const { return padding_.data(); }

  std::size_t bytes() const { return padding_.size(); }

 private:
  bool needs_no_padding() const;

  ConvGeometry g_;
  SegmentLayout layout_;
  int zero_;
  AlignedBytes padding_;
  std::vector<RegionWindows> regions_;
  std::size_t band_row_bytes_ = 0;
  int band_rows_ = 0;
  std::size_t band_bytes_ = 0;
};

}  // namespace tpuconvert::avx512
