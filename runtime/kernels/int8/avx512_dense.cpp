#if defined(__x86_64__)

#include "int8/avx512_dense.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "int8/avx512_finish.h"
#include "int8/avx512_packing.h"

namespace tpuconvert::avx512 {
namespace {

constexpr int kMaxRows = 12;
constexpr std::size_t kCacheShare = 512 * 1024;  // of weights that may stay in the second-level cache beside activations
constexpr std::size_t kGroupBytes = 320 * 1024;  // of weights that are used for all rows before the next are read
constexpr std::size_t kPassBytes = 16 * 1024;
constexpr std::size_t kBandBytes = 48 * 1024;    // of padded input rows that are copied at once

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

TileKernel tile_kernel(TileForm form, const Panel& panel, int rows) {
  switch (form) {
    case TileForm::kOneFactor: return tile_one_factor(panel.full, panel.half, rows);
    case TileForm::kTwoFactors: return tile_two_factors(panel.full, panel.half, rows);
    case TileForm::kKinked: return tile_kinked(panel.full, panel.half, rows);
    case TileForm::kSums: break;
  }
  return tile_sums(panel.full, panel.half, rows);
}

// Neighbouring panels of one shape, whose weights are used for all rows of a part before those of the next run.
struct PanelRun {
  int first, last;  // last is exclusive
};

std::vector<PanelRun> runs_of(const std::vector<Panel>& panels, std::size_t weight_bytes) {
  const std::size_t limit = weight_bytes > kCacheShare ? kGroupBytes : weight_bytes;
  std::vector<PanelRun> runs;
  std::size_t bytes = 0;
  for (int i = 0; i < static_cast<int>(panels.size()); ++i) {
    const Panel& panel = panels[static_cast<std::size_t>(i)];
    const Panel* before = i == 0 ? nullptr : &panels[static_cast<std::size_t>(i - 1)];
    if (before == nullptr || before->full != panel.full || before->half != panel.half ||
        bytes + panel.weight_bytes > limit) {
      runs.push_back({i, i});
      bytes = 0;
    }
    bytes += panel.weight_bytes;
    runs.back().last = i + 1;
  }
  return runs;
}

// Where the pixels of a range of results come from and go to.
struct Source {
  const std::uint8_t* input;  // of the image, or of the band copied from it
  std::uint8_t* output;       // of the image
  int first_row;              // result row that input row 0 of a band belongs to
};

class Dense : public ConvInt8Kernel {
 public:
  explicit Dense(const ConvInt8Spec& spec)
      : g_(spec.geometry),
        zero_(spec.input_zero),
        epilogue_(spec.epilogue, spec.geometry.out_channels, Isa::kAvx512Vnni),
        packed_(pack(spec, epilogue_)),
        runs_(runs_of(packed_.panels, packed_.weights.size())),
        finish_(epilogue_),
        kind_(kind_of(spec.geometry)) {
    const SegmentLayout& layout = packed_.layout;
    if (packed_.weights.size() > kCacheShare) {
      rows_per_pass_ = std::numeric_limits<std::int64_t>::max();
    } else {
      // Results whose inputs stay in the first-level cache until all panels have used them.
      const std::size_t bytes = static_cast<std::size_t>(g_.in_channels) * static_cast<std::size_t>(g_.stride_w);
      rows_per_pass_ = std::max<std::int64_t>(84, static_cast<std::int64_t>(kPassBytes / bytes) / 84 * 84);
    }
    joins_taps_ = !layout.is_padded_row && g_.kernel_w > 1 && g_.dilation_w == 1 && g_.in_pixel == g_.in_channels &&
                  layout.bytes == static_cast<std::size_t>(g_.in_channels);
    needs_no_padding_ = g_.pad_top == 0 && g_.pad_left == 0 && bottom(g_.out_height - 1) < g_.height &&
                        right(g_.out_width - 1) < g_.width;
    are_rows_adjacent_ = epilogue_.bytes() == 1 && g_.out_row == g_.out_width * g_.out_pixel &&
                         (g_.batch == 1 || g_.out_image == g_.out_height * g_.out_row);
    column_step_ = layout.is_padded_row ? g_.stride_w * g_.in_channels : g_.stride_w * g_.in_pixel;
    if (layout.is_padded_row) {
      band_row_bytes_ = static_cast<std::size_t>((g_.out_width - 1) * g_.stride_w + g_.kernel_w) *
                        static_cast<std::size_t>(g_.in_channels);
      const auto rows_of_band = [&](int results) {
        return static_cast<std::size_t>((results - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1);
      };
      band_results_ = 1;
      while (band_results_ < g_.out_height && rows_of_band(band_results_ + 1) * band_row_bytes_ <= kBandBytes)
        ++band_results_;
      band_bytes_ = aligned(rows_of_band(band_results_) * band_row_bytes_ + kSlack);
    } else if (!needs_no_padding_) {
      const std::size_t row = static_cast<std::size_t>(g_.in_channels) * static_cast<std::size_t>(joins_taps_ ? g_.kernel_w : 1);
      padding_ = AlignedBytes(row);
      std::memset(padding_.data(), zero_, row);
    }
  }

  int parts(int threads) const override {
    if (threads == 1) return 1;
    const int panels = static_cast<int>(packed_.panels.size());
    if (splits_panels(threads)) return std::min(threads, panels);
    const std::int64_t units = packed_.layout.is_padded_row ? rows() : (positions() + kMaxRows - 1) / kMaxRows;
    return static_cast<int>(std::min<std::int64_t>(threads, units));
  }

  void run(const std::uint8_t* input, std::uint8_t* output, int part, int parts, std::uint8_t* scratch) const override {
    if (parts > 1 && splits_panels(parts)) {
      const std::int64_t count = static_cast<std::int64_t>(packed_.panels.size());
      const int first = static_cast<int>(count * part / parts), last = static_cast<int>(count * (part + 1) / parts);
      run_part(input, output, first, last, 0, 1, scratch);
    } else {
      run_part(input, output, 0, static_cast<int>(packed_.panels.size()), part, parts, scratch);
    }
  }

  std::size_t scratch_bytes() const override { return inputs_bytes() + kSumBytes + band_bytes_; }
  std::size_t packed_bytes() const override {
    return packed_.weights.size() + packed_.parameters.size() + finish_.bytes() + padding_.size();
  }
  const char* kind() const override { return kind_.c_str(); }

 private:
  static constexpr std::size_t kSumBytes = 28 * 64;  // of the largest tile

  std::int64_t rows() const { return std::int64_t{g_.batch} * g_.out_height; }
  std::int64_t positions() const { return rows() * g_.out_width; }
  int bottom(int y) const { return y * g_.stride_h - g_.pad_top + (g_.kernel_h - 1) * g_.dilation_h; }
  int right(int x) const { return x * g_.stride_w - g_.pad_left + (g_.kernel_w - 1) * g_.dilation_w; }
  int segments() const { return packed_.layout.count * packed_.layout.copies; }
  std::size_t inputs_bytes() const {
    return aligned(static_cast<std::size_t>(segments()) * kMaxRows * sizeof(const std::uint8_t*));
  }

  // By output channels where the weights are the larger share of what is read, and they divide evenly enough.
  bool splits_panels(int parts) const {
    const int panels = static_cast<int>(packed_.panels.size());
    if (panels < parts || (panels % parts != 0 && panels < 8 * parts)) return false;
    const std::int64_t input_bytes = std::int64_t{g_.batch} * g_.height * g_.width * g_.in_channels;
    return static_cast<std::int64_t>(packed_.weights.size()) > input_bytes;
  }

  // Panels first..last-1, one part of the rows.
  void run_part(const std::uint8_t* input, std::uint8_t* output, int first, int last, int part, int parts,
                std::uint8_t* scratch) const {
    if (!packed_.layout.is_padded_row) {
      const std::int64_t end = positions() * (part + 1) / parts;
      std::int64_t at = positions() * part / parts;
      while (at < end) {
        const std::int64_t count = std::min(end - at, rows_per_pass_);
        run_panels(input, output, first, last, at, at + count, scratch);
        at += count;
      }
      return;
    }
    std::uint8_t* band = scratch + inputs_bytes() + kSumBytes;
    const std::int64_t end = rows() * (part + 1) / parts;
    for (std::int64_t row = rows() * part / parts; row < end;) {
      const std::int64_t image = row / g_.out_height;
      const int y = static_cast<int>(row % g_.out_height);
      const int count = static_cast<int>(std::min<std::int64_t>({band_results_, g_.out_height - y, end - row}));
      copy_band(input + image * g_.in_image, y, count, band);
      run_panels(band, output, first, last, row * g_.out_width, (row + count) * g_.out_width, scratch);
      row += count;
    }
  }

  void run_panels(const std::uint8_t* input, std::uint8_t* output, int first, int last, std::int64_t first_position,
                  std::int64_t last_position, std::uint8_t* scratch) const {
    for (const PanelRun& run : runs_) {
      const PanelRun cut{std::max(run.first, first), std::min(run.last, last)};
      if (cut.first >= cut.last) continue;
      const Panel& shape = packed_.panels[static_cast<std::size_t>(cut.first)];
      run_positions(input, output, cut, largest_rows(shape.full, shape.half), first_position, last_position, scratch);
    }
  }

  // The input rows under `count` result rows from `y` on, with the padding around them.
  void copy_band(const std::uint8_t* image, int y, int count, std::uint8_t* band) const {
    const int top = y * g_.stride_h - g_.pad_top;
    const int rows = (count - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1;
    const int width = (g_.out_width - 1) * g_.stride_w + g_.kernel_w;
    const int left = std::min(g_.pad_left, width);
    const int kept = std::clamp(g_.width, 0, width - left);
    const std::size_t pixel = static_cast<std::size_t>(g_.in_channels);
    for (int i = 0; i < rows; ++i, band += band_row_bytes_) {
      const int from = top + i;
      if (from < 0 || from >= g_.height) {
        std::memset(band, zero_, band_row_bytes_);
        continue;
      }
      std::memset(band, zero_, static_cast<std::size_t>(left) * pixel);
      std::uint8_t* to = band + static_cast<std::size_t>(left) * pixel;
      const std::uint8_t* line = image + from * g_.in_row;
      if (g_.in_pixel == g_.in_channels) {
        std::memcpy(to, line, static_cast<std::size_t>(kept) * pixel);
      } else {
        for (int x = 0; x < kept; ++x) std::memcpy(to + static_cast<std::size_t>(x) * pixel, line + x * g_.in_pixel, pixel);
      }
      std::memset(to + static_cast<std::size_t>(kept) * pixel, zero_, static_cast<std::size_t>(width - left - kept) * pixel);
    }
  }

  // Results first..last-1 of all images in rows. For padded rows `input` is a band that begins at the row of `first`.
  void run_positions(const std::uint8_t* input, std::uint8_t* output, PanelRun run, int most, std::int64_t first,
                     std::int64_t last, std::uint8_t* scratch) const {
    const std::int64_t count = last - first;
    if (count <= 0) return;
    const std::int64_t tiles = (count + most - 1) / most;
    const int fewer = static_cast<int>(count / tiles);
    const std::int64_t with_one_more = count % tiles;  // so that no tile is much smaller than the others

    const std::uint8_t** inputs = reinterpret_cast<const std::uint8_t**>(scratch);
    std::int32_t* sums = reinterpret_cast<std::int32_t*>(scratch + inputs_bytes());
    std::uint8_t* outputs[kMaxRows];
    Position position = position_of(first);
    const int band_y = position.y;

    TileArguments arguments{};
    arguments.inputs = inputs;
    arguments.outputs = outputs;
    arguments.sums = sums;
    arguments.lut = epilogue_.spec().lut.empty() ? nullptr : epilogue_.spec().lut.data();
    arguments.low = static_cast<int>(epilogue_.spec().low);
    arguments.high = static_cast<int>(epilogue_.spec().high);
    TileKernel kernels[4] = {};
    int rows = 0;
    for (std::int64_t tile = 0; tile < tiles; ++tile) {
      const int wanted = fewer + (tile < with_one_more ? 1 : 0);
      if (wanted != rows) {
        rows = wanted;
        for (int form = 0; form < 4; ++form)
          kernels[form] = tile_kernel(static_cast<TileForm>(form), packed_.panels[static_cast<std::size_t>(run.first)], rows);
      }
      place_rows(input, output, rows, band_y, &position, &arguments, inputs, outputs);
      for (int i = run.first; i < run.last; ++i) {
        const Panel& panel = packed_.panels[static_cast<std::size_t>(i)];
        arguments.input_offset = panel.input_offset;
        arguments.weights = packed_.weights.as<std::int8_t>() + panel.weights;
        arguments.parameters = packed_.lanes(panel);
        arguments.output_offset = static_cast<std::size_t>(panel.first) * static_cast<std::size_t>(epilogue_.bytes());
        arguments.mask = ~std::uint64_t{0} >> (64 - panel.columns);
        arguments.offset = panel.offset;
        arguments.is_adjacent = are_rows_adjacent_ && panel.columns == kLanes * panel.accumulators() &&
                                g_.out_pixel == panel.columns;
        kernels[static_cast<int>(panel.form)](arguments);
        if (panel.form == TileForm::kSums) finish_.run(panel.first, panel.columns, rows, sums, panel.accumulators() * kLanes, outputs);
      }
    }
  }

  struct Position {
    std::int64_t image;
    int y, x;
  };

  Position position_of(std::int64_t index) const {
    const std::int64_t row = index / g_.out_width;
    return {row / g_.out_height, static_cast<int>(row % g_.out_height), static_cast<int>(index % g_.out_width)};
  }

  // `count` results on; they do not leave the row before its end.
  void advance(Position* position, int count) const {
    position->x += count;
    if (position->x < g_.out_width) return;
    position->x = 0;
    if (++position->y < g_.out_height) return;
    position->y = 0;
    ++position->image;
  }

  // Neighbouring results of one row, from `begin` on among those of a tile.
  struct Stretch {
    int begin, end;
    int top, left;  // input position of the first tap
  };

  // Addresses of the next `rows` results and of the segments under them; moves `position` on.
  void place_rows(const std::uint8_t* input, std::uint8_t* output, int rows, int band_y, Position* position,
                  TileArguments* arguments, const std::uint8_t** inputs, std::uint8_t** outputs) const {
    Stretch stretches[kMaxRows];
    int count = 0;
    bool is_inside_rows = true, is_inside = true;
    Position at = *position;
    const std::ptrdiff_t out_pixel = g_.out_pixel, column_step = column_step_;
    for (int row = 0; row < rows; ++count) {
      const int fit = std::min(rows - row, g_.out_width - at.x);
      const int top = at.y * g_.stride_h - g_.pad_top, left = at.x * g_.stride_w - g_.pad_left;
      stretches[count] = {row, row + fit, top, left};
      std::uint8_t* to = output + at.image * g_.out_image + at.y * g_.out_row + at.x * out_pixel;
      const std::uint8_t* from;  // the corner of the window, which may lie outside of the image
      if (packed_.layout.is_padded_row) {
        from = input + static_cast<std::size_t>((at.y - band_y) * g_.stride_h) * band_row_bytes_ + at.x * column_step;
      } else {
        from = input + at.image * g_.in_image + top * g_.in_row + left * g_.in_pixel;
        is_inside_rows &= top >= 0 && top + (g_.kernel_h - 1) * g_.dilation_h < g_.height;
        is_inside &= left >= 0 && left + (fit - 1) * g_.stride_w + (g_.kernel_w - 1) * g_.dilation_w < g_.width;
      }
      step_along(fit, from, column_step, inputs + row);
      step_along(fit, to, out_pixel, outputs + row);
      row += fit;
      advance(&at, fit);
    }
    *position = at;
    int placed = 1;
    arguments->segment_bytes = packed_.layout.bytes;
    if (packed_.layout.is_padded_row) {
      placed = place_kernel_rows(rows, static_cast<std::ptrdiff_t>(band_row_bytes_) * g_.dilation_h, inputs);
    } else if (joins_taps_ && is_inside) {
      placed = is_inside_rows ? place_kernel_rows(rows, g_.in_row * g_.dilation_h, inputs)
                              : place_kernel_rows_at_edge(rows, stretches, count, inputs);
      arguments->segment_bytes = packed_.layout.bytes * static_cast<std::size_t>(g_.kernel_w);
    } else if (!(is_inside && is_inside_rows)) {
      placed = place_taps_at_edge(rows, stretches, count, inputs);
    } else if (g_.taps() != 1) {
      placed = place_taps(rows, inputs);
    }
    const int copies = packed_.layout.copies;
    for (int copy = 1; copy < copies; ++copy)
      std::memcpy(inputs + copy * placed * rows, inputs, static_cast<std::size_t>(placed * rows) * sizeof(*inputs));
    arguments->segments = static_cast<std::size_t>(placed * copies);
  }

  template <typename Byte>
  static void step_along(int count, Byte* first, std::ptrdiff_t step, Byte** to) {
    for (int i = 0; i < count; ++i) to[i] = first + i * step;
  }

  // The following functions turn the corners of windows, in the first `rows` elements of `to`, into addresses of segments
  // and return the number of segments.

  // Rows of the kernel as one segment each.
  int place_kernel_rows(int rows, std::ptrdiff_t step, const std::uint8_t** to) const {
    for (int y = 1; y < g_.kernel_h; ++y)
      for (int row = 0; row < rows; ++row) to[y * rows + row] = to[row] + y * step;
    return g_.kernel_h;
  }

  // The same where rows above or below the image are padding.
  int place_kernel_rows_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const {
    for (int y = g_.kernel_h - 1; y >= 0; --y) {
      for (const Stretch* stretch = stretches; stretch != stretches + count; ++stretch) {
        const int at = stretch->top + y * g_.dilation_h;
        const bool is_in = at >= 0 && at < g_.height;
        for (int row = stretch->begin; row < stretch->end; ++row)
          to[y * rows + row] = is_in ? to[row] + y * g_.dilation_h * g_.in_row : padding_.data();
      }
    }
    return g_.kernel_h;
  }

  std::ptrdiff_t tap_step(int y, int x) const { return y * g_.dilation_h * g_.in_row + x * g_.dilation_w * g_.in_pixel; }

  int place_taps(int rows, const std::uint8_t** to) const {
    for (int tap = 1; tap < g_.taps(); ++tap) {
      const std::ptrdiff_t step = tap_step(tap / g_.kernel_w, tap % g_.kernel_w);
      for (int row = 0; row < rows; ++row) to[tap * rows + row] = to[row] + step;
    }
    return g_.taps();
  }

  int place_taps_at_edge(int rows, const Stretch* stretches, int count, const std::uint8_t** to) const {
    for (int y = g_.kernel_h - 1; y >= 0; --y) {
      for (int x = g_.kernel_w - 1; x >= 0; --x) {
        const std::ptrdiff_t step = tap_step(y, x);
        const std::uint8_t** segment = to + (y * g_.kernel_w + x) * rows;
        for (const Stretch* stretch = stretches; stretch != stretches + count; ++stretch) {
          const int at_y = stretch->top + y * g_.dilation_h;
          const bool is_row_in = at_y >= 0 && at_y < g_.height;
          int at_x = stretch->left + x * g_.dilation_w;
          for (int row = stretch->begin; row < stretch->end; ++row, at_x += g_.stride_w)
            segment[row] = is_row_in && at_x >= 0 && at_x < g_.width ? to[row] + step : padding_.data();
        }
      }
    }
    return g_.taps();
  }

  ConvGeometry g_;
  int zero_;
  Epilogue epilogue_;
  PackedConv packed_;
  std::vector<PanelRun> runs_;
  Finish finish_;
  AlignedBytes padding_;
  std::int64_t rows_per_pass_ = 0;  // results that all panels are computed for before the next ones
  std::ptrdiff_t column_step_ = 0;  // bytes of the input from result to result of a row
  bool joins_taps_ = false;
  bool needs_no_padding_ = false;
  bool are_rows_adjacent_ = false;  // results follow each other at out_pixel bytes
  std::size_t band_row_bytes_ = 0;
  int band_results_ = 0;
  std::size_t band_bytes_ = 0;
  std::string kind_;
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_dense(const ConvInt8Spec& spec) { return std::make_unique<Dense>(spec); }

}  // namespace tpuconvert::avx512

#endif
