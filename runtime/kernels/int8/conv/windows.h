// Addresses of the window segments of each result: in the input, in a row of padding, or in a band of copied input
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/aligned.h"
#include "int8/conv/row_band.h"
#include "int8/conv/tile_packing.h"
#include "int8/conv/regions.h"
#include "int8/conv/window_walk.h"
#include "int8/conv/conv.h"

namespace tpuconvert::avx512 {

constexpr int kMaxRows = kAmxRows;  // maximum number of rows of a tile of any unit

struct Segments {
  std::size_t count;
  std::size_t bytes;           // bytes of each segment
  const std::uint32_t* skips;  // [count], see TileArguments
};

// Windows of a region of results. Results are counted from the corner of the region.
class RegionWindows {
 public:
  RegionWindows(const ConvInt8Spec& spec, const SegmentLayout& layout, const Region& region, bool can_leave,
                std::ptrdiff_t row_pitch, std::ptrdiff_t column_pitch, const std::uint8_t* padding);

  const Region& region() const { return region_; }
  std::int64_t results() const { return std::int64_t{batch_} * region_.height * region_.width; }

  // True if consecutive results of the region are contiguous in the tensor.
  bool is_contiguous() const { return is_contiguous_; }

  // Results of a line that are stored. Lines of a band for AMX may also contain the padded columns, so that the windows of
  // all results of the band have a constant distance.
  int stored_width() const { return stored_width_; }
  bool runs_on() const { return stored_width_ != region_.width; }

  // Number of consecutive results with constant strides, starting at every multiple of it: input_step() between
  // windows, output_step() between results and between residual operands. It is 0 if windows may leave the input.
  std::int64_t even_results() const { return even_results_; }
  std::ptrdiff_t input_step() const { return shape_.input.result; }
  std::ptrdiff_t output_step() const { return shape_.output.result; }

  // Offset of the weights of the first tap, in steps of 4 bytes.
  std::size_t first_step() const { return first_step_; }

  // Calls body(tap) for every tap of the kernel that the region skips.
  template <typename Body>
  void for_missing_taps(Body&& body) const {
    for (int tap = 0; tap < kernel_h_ * kernel_w_; ++tap) {
      const int y = tap / kernel_w_ - region_.tap_y, x = tap % kernel_w_ - region_.tap_x;
      if (y < 0 || y >= region_.taps_h || x < 0 || x >= region_.taps_w) body(tap);
    }
  }

  // Starts a walk at result `index`, counted over all images. With a band, `at.input` is the start of the window of the
  // first result of the row.
  void begin(const ConvAddresses& at, std::int64_t index, Walk* walk) const;

  // Writes the addresses of the segments of the next `rows` results to `inputs`, [segment][row]. A kernel row can be one
  // segment only if `may_join`.
  Segments place(const Walk& walk, int rows, const std::uint8_t** inputs, bool may_join = true) const;

  // Moves a walk by `rows` results.
  void advance(const Walk& from, int rows, Walk* to) const { walk_on(shape_, from, rows, to); }

 private:
  bool stays_inside(const ConvGeometry& g) const;
  std::int64_t count_even_results(const ConvInt8Spec& spec) const;

  Region region_;
  int batch_, kernel_h_, kernel_w_;
  bool is_band_, is_contiguous_;
  int stored_width_;
  int copies_;
  std::size_t segment_bytes_;
  std::ptrdiff_t corner_;         // bytes from the input to the first tap of the first result
  std::ptrdiff_t output_corner_;
  std::ptrdiff_t other_corner_;
  std::int64_t even_results_;
  WalkShape shape_{};
  std::size_t first_step_;
  std::vector<std::uint32_t> tap_skips_, line_skips_;
};

class Windows {
 public:
  // Results are divided into regions by the costs, or not at all if `costs` is null.
  Windows(const ConvInt8Spec& spec, const SegmentLayout& layout, const TileCosts* costs);

  // Size of the address array that `place` writes, a multiple of 64.
  std::size_t address_bytes() const;

  const std::vector<RegionWindows>& regions() const { return regions_; }

  // True if every region is contiguous.
  bool are_regions_contiguous() const;

  // Padded copies of input rows; empty if windows are read from the input.
  const std::optional<Band>& band() const { return band_; }

  // A segment of padding as long as the longest segment; null if no window leaves the image.
  const std::uint8_t* padding() const { return padding_.data(); }

  std::size_t bytes() const { return padding_.size(); }

 private:
  bool needs_no_padding() const;

  ConvGeometry g_;
  SegmentLayout layout_;
  AlignedBytes padding_;
  std::optional<Band> band_;
  std::vector<RegionWindows> regions_;
};

}  // namespace tpuconvert::avx512
