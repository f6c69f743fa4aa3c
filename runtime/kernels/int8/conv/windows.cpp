#if defined(__x86_64__)

#include "int8/conv/windows.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace tpuconvert::avx512 {
namespace {

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

// Input rows copied together: a part of the first-level cache for VNNI, of the second-level cache for AMX. Weights that are
// larger than a band are read once per band, so that they have larger ones.
constexpr std::size_t kBandBytes = 48 * 1024, kAmxBandBytes = 256 * 1024, kLargeBandBytes = 1024 * 1024;
constexpr std::size_t kSmallWeights = 1024 * 1024;

std::size_t band_limit(const ConvGeometry& g, const SegmentLayout& layout) {
  if (layout.unit == TileUnit::kVnni) return kBandBytes;
  return layout.depth() * static_cast<std::size_t>(g.out_channels) > kSmallWeights ? kLargeBandBytes : kAmxBandBytes;
}

// True if the windows of all results of a band have a constant distance, counting the padded columns as results, and
// this takes no more tiles than tiles of up to 16 results of one line.
bool is_run_on(const ConvGeometry& g, const SegmentLayout& layout, const Band& band) {
  if (layout.unit == TileUnit::kVnni || g.stride_w != 1 || band.row_pitch() != band.columns() * band.column_pitch())
    return false;
  const std::int64_t rows = std::min(g.out_height, band.results());
  const auto tiles = [](std::int64_t results) { return (results + kAmxRows - 1) / kAmxRows; };
  return tiles(rows * band.columns()) <= rows * tiles(g.out_width);
}

}  // namespace

RegionWindows::RegionWindows(const ConvInt8Spec& spec, const SegmentLayout& layout, const Region& region, bool can_leave,
                             std::ptrdiff_t row_pitch, std::ptrdiff_t column_pitch, const std::uint8_t* padding)
    : region_(region),
      batch_(spec.geometry.batch),
      kernel_h_(spec.geometry.kernel_h),
      kernel_w_(spec.geometry.kernel_w),
      is_band_(layout.is_copied()),
      is_contiguous_(region.width == spec.geometry.out_width &&
                       (spec.geometry.batch == 1 || region.height == spec.geometry.out_height)),
      stored_width_(std::min(region.width, spec.geometry.out_width)),
      copies_(layout.copies),
      segment_bytes_(layout.bytes),
      output_corner_(region.y * spec.geometry.out_row + region.x * spec.geometry.out_pixel),
      other_corner_(spec.residual ? region.y * spec.residual->row + region.x * spec.residual->pixel : 0) {
  const ConvGeometry& g = spec.geometry;
  shape_.stride_h = g.stride_h;
  shape_.stride_w = g.stride_w;
  shape_.out_height = region.height;
  shape_.out_width = region.width;
  shape_.pad_top = can_leave ? g.pad_top - region.y * g.stride_h - region.tap_y * g.dilation_h : 0;
  shape_.pad_left = can_leave ? g.pad_left - region.x * g.stride_w - region.tap_x * g.dilation_w : 0;
  shape_.height = can_leave ? g.height : std::numeric_limits<int>::max();
  shape_.width = can_leave ? g.width : std::numeric_limits<int>::max();
  shape_.kernel_h = layout.windows == WindowLayout::kColumns ? 1 : region.taps_h;
  shape_.kernel_w = is_band_ ? 1 : region.taps_w;
  shape_.dilation_h = g.dilation_h;
  shape_.dilation_w = g.dilation_w;
  shape_.tap_row = row_pitch / g.stride_h * g.dilation_h;
  shape_.tap_column = column_pitch * g.dilation_w;
  shape_.joins_taps = shape_.kernel_w > 1 && g.dilation_w == 1 && g.in_pixel == g.in_channels &&
                      layout.bytes == static_cast<std::size_t>(g.in_channels);
  shape_.padding = padding;
  const auto steps = [&](std::ptrdiff_t result, std::ptrdiff_t row, std::ptrdiff_t image) {
    return WalkSteps{result, row - region.width * result, image - region.height * row};
  };
  shape_.input = steps(column_pitch * g.stride_w, row_pitch, is_band_ ? 0 : g.in_image);
  shape_.output = steps(g.out_pixel, g.out_row, g.out_image);
  if (spec.residual) shape_.other = steps(spec.residual->pixel, spec.residual->row, spec.residual->image);
  corner_ = is_band_ ? 0 : -(shape_.pad_top * g.in_row + shape_.pad_left * g.in_pixel);

  // Steps of weights to skip after each tap, and after each kernel row that is read as one segment.
  const int kernel_w = is_band_ ? 1 : g.kernel_w;
  const auto step_of = [&](int copy, int y, int x) {
    const int tap = copy * layout.count + (region.tap_y + y) * kernel_w + region.tap_x + x;
    return static_cast<std::size_t>(tap) * (layout.bytes / 4);
  };
  first_step_ = step_of(0, 0, 0);
  const std::size_t tap_steps = layout.bytes / 4;
  for (int copy = 0; copy < copies_; ++copy) {
    for (int y = 0; y < shape_.kernel_h; ++y) {
      for (int x = 0; x + 1 < shape_.kernel_w; ++x) tap_skips_.push_back(0);
      const std::size_t next = y + 1 < shape_.kernel_h ? step_of(copy, y + 1, 0) : step_of(copy + 1, 0, 0);
      const std::size_t end = step_of(copy, y, shape_.kernel_w - 1) + tap_steps;
      tap_skips_.push_back(static_cast<std::uint32_t>(next - end));
      line_skips_.push_back(tap_skips_.back());
    }
  }
  even_results_ = count_even_results(spec);
}

bool RegionWindows::stays_inside(const ConvGeometry& g) const {
  const auto is_inside = [](int results, int stride, int pad, int taps, int dilation, int extent) {
    return pad <= 0 && std::int64_t{results - 1} * stride - pad + std::int64_t{taps - 1} * dilation < extent;
  };
  return shape_.padding == nullptr ||
         (is_inside(region_.height, g.stride_h, shape_.pad_top, region_.taps_h, g.dilation_h, g.height) &&
          is_inside(region_.width, g.stride_w, shape_.pad_left, region_.taps_w, g.dilation_w, g.width));
}

std::int64_t RegionWindows::count_even_results(const ConvInt8Spec& spec) const {
  if (!stays_inside(spec.geometry) || (spec.residual && shape_.other.result != shape_.output.result)) return 0;
  const auto goes_on = [](const WalkSteps& steps) { return steps.row == 0 && steps.image == 0; };
  const bool do_rows_go_on = !is_band_ && goes_on(shape_.input) && goes_on(shape_.output) && goes_on(shape_.other);
  return do_rows_go_on ? results() : region_.width;
}

Windows::Windows(const ConvInt8Spec& spec, const SegmentLayout& layout, const TileCosts* costs)
    : g_(spec.geometry), layout_(layout) {
  std::ptrdiff_t row_pitch = g_.in_row * g_.stride_h, column_pitch = g_.in_pixel;
  bool can_leave = false;
  if (layout.is_copied()) {
    band_.emplace(spec, layout, band_limit(g_, layout));
    row_pitch = band_->row_pitch();
    column_pitch = band_->column_pitch();
  } else if (!needs_no_padding()) {
    can_leave = true;
    padding_ = AlignedBytes(static_cast<std::size_t>(g_.in_channels) * static_cast<std::size_t>(g_.kernel_w));
    std::memset(padding_.data(), spec.input_zero, padding_.size());
  }
  const int width = band_ && is_run_on(g_, layout, *band_) ? band_->columns() : g_.out_width;
  const Region whole{0, 0, g_.out_height, width, 0, 0, g_.kernel_h, g_.kernel_w};
  const std::vector<Region> regions = can_leave && costs != nullptr ? regions_of(g_, *costs) : std::vector<Region>{whole};
  for (const Region& region : regions)
    regions_.emplace_back(spec, layout, region, can_leave, row_pitch, column_pitch, padding_.data());
}

bool Windows::are_regions_contiguous() const {
  return std::all_of(regions_.begin(), regions_.end(),
                     [](const RegionWindows& windows) { return windows.is_contiguous(); });
}

bool Windows::needs_no_padding() const {
  const auto reaches_over = [](int results, int stride, int pad, int taps, int dilation, int extent) {
    return pad > 0 || (results - 1) * stride + (taps - 1) * dilation >= extent;
  };
  return !reaches_over(g_.out_height, g_.stride_h, g_.pad_top, g_.kernel_h, g_.dilation_h, g_.height) &&
         !reaches_over(g_.out_width, g_.stride_w, g_.pad_left, g_.kernel_w, g_.dilation_w, g_.width);
}

std::size_t Windows::address_bytes() const {
  return aligned((static_cast<std::size_t>(layout_.count * layout_.copies) * kMaxRows + kWalkLanes) *
                 sizeof(const std::uint8_t*));
}

void RegionWindows::begin(const ConvAddresses& at, std::int64_t index, Walk* walk) const {
  const std::int64_t row = index / region_.width;
  std::int64_t image = row / region_.height;
  int x = static_cast<int>(index % region_.width), y = static_cast<int>(row % region_.height);
  const int band_y = is_band_ ? y : 0;
  const auto offset = [&](const WalkSteps& steps, int from_y) {
    const std::ptrdiff_t row_bytes = steps.row + region_.width * steps.result;
    return image * (steps.image + region_.height * row_bytes) + (y - from_y) * row_bytes + x * steps.result;
  };
  for (int lane = 0; lane < kWalkLanes; ++lane) {
    walk->x[lane] = x;
    walk->y[lane] = y;
    walk->input[lane] = at.input + corner_ + offset(shape_.input, band_y);
    walk->output[lane] = at.output + output_corner_ + offset(shape_.output, 0);
    walk->other[lane] = at.other + other_corner_ + offset(shape_.other, 0);
    if (++x < region_.width) continue;
    x = 0;
    if (++y < region_.height) continue;
    y = 0;
    ++image;
  }
}

Segments RegionWindows::place(const Walk& walk, int rows, const std::uint8_t** inputs, bool may_join) const {
  bool joined = may_join;
  const int placed = place_segments(shape_, walk, rows, inputs, &joined);
  for (int copy = 1; copy < copies_; ++copy)
    std::memcpy(inputs + copy * placed * rows, inputs, static_cast<std::size_t>(placed * rows) * sizeof(*inputs));
  return {static_cast<std::size_t>(placed * copies_),
          segment_bytes_ * static_cast<std::size_t>(joined ? shape_.kernel_w : 1),
          joined ? line_skips_.data() : tap_skips_.data()};
}

}  // namespace tpuconvert::avx512

#endif
