#if defined(__x86_64__)

#include "int8/conv/tile_packing.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "int8/conv/interleave_columns.h"
#include "int8/epilogue/panel_requant.h"
#include "int8/conv/weight_panels.h"
#include "int8/conv/weight_rows.h"

namespace tpuconvert::avx512 {
namespace {

std::size_t rounded_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

// --- shapes ----------------------------------------------------------------------------------------------------------

struct Shape {
  int full;
  bool half;

  int columns() const { return 16 * full + (half ? 8 : 0); }
};

std::vector<Shape> amx_shapes_of(int channels) {
  std::vector<Shape> shapes;
  for (int registers = (channels + kLanes - 1) / kLanes; registers > 0; registers -= kAmxAccumulators)
    shapes.push_back({std::min(registers, kAmxAccumulators), false});
  return shapes;
}

// Splits channels into panels: wide panels first, with few unused lanes in the last one.
std::vector<Shape> shapes_of(int channels, TileUnit unit) {
  if (unit == TileUnit::kAmx) return amx_shapes_of(channels);
  std::vector<Shape> shapes;
  for (; channels >= 64; channels -= 64) shapes.push_back({4, false});
  if (channels > 56) {
    shapes.push_back({4, false});
  } else if (channels > 48) {
    shapes.push_back({2, false});
    shapes.push_back({1, true});
  } else if (channels > 40) {
    shapes.push_back({3, false});
  } else if (channels > 32) {
    shapes.push_back({1, true});
    shapes.push_back({1, false});
  } else if (channels > 24) {
    shapes.push_back({2, false});
  } else if (channels > 16) {
    shapes.push_back({1, true});
  } else if (channels > 8) {
    shapes.push_back({1, false});
  } else if (channels > 0) {
    shapes.push_back({0, true});
  }
  return shapes;
}

// Number of groups that share a panel. Groups with few output channels are merged: each channel has zero weights for
// the inputs of the other groups.
int groups_per_panel(const ConvGeometry& g) {
  int merged = std::max(1, std::min(g.groups, kLanes / g.group_out()));
  while (g.groups % merged != 0) --merged;
  return merged;
}

// True if WindowLayout::kColumns is faster than kRows: it wastes fewer bytes of the segments, but columns must be
// interleaved for every row of results.
bool are_columns_worthwhile(const ConvGeometry& g, TileUnit unit) {
  const std::int64_t column = std::int64_t{g.kernel_h} * g.in_channels;
  if (column > kColumnBytes) return false;
  // Both units take one cycle per result and accumulator for a step.
  const std::int64_t step = unit == TileUnit::kAmx ? kChunkBytes : 4;
  const auto steps = [step](std::int64_t bytes) { return (bytes + step - 1) / step; };
  const std::int64_t saved_steps = g.kernel_h * steps(std::int64_t{g.kernel_w} * g.in_channels) - steps(g.kernel_w * column);
  const std::int64_t accumulators = (g.out_channels + kLanes - 1) / kLanes;
  const std::int64_t columns = std::int64_t{g.out_width - 1} * g.stride_w + g.kernel_w;
  const std::int64_t vectors = columns / (kColumnBytes / column) + 1;
  constexpr std::int64_t kStoreCycles = 4;
  return saved_steps * accumulators * g.out_width > vectors * (g.kernel_h + kStoreCycles);
}

// Bytes of a chunk: a segment has as few chunks as possible, all of the same size.
std::size_t chunk_of(std::size_t segment, TileUnit unit) {
  if (unit == TileUnit::kVnni) return 4;
  const std::size_t chunks = (segment + kChunkBytes - 1) / kChunkBytes;
  return rounded_up((segment + chunks - 1) / chunks, 4);
}

SegmentLayout layout_of(const ConvGeometry& g, int copies, TileUnit unit) {
  SegmentLayout layout;
  layout.unit = unit;
  layout.merged_groups = groups_per_panel(g);
  layout.channels = layout.merged_groups * g.group_in();
  layout.copies = copies;
  // AMX loads rows with a constant distance, which overlapping windows have in a padded copy.
  const bool has_even_copy = unit == TileUnit::kAmx && (g.stride_w == 1 || g.pad_left > 0 || g.pad_top > 0);
  if (g.groups == 1 && g.kernel_w > 1 && g.dilation_w == 1 && (g.in_channels % 4 != 0 || has_even_copy))
    layout.windows = are_columns_worthwhile(g, unit) ? WindowLayout::kColumns : WindowLayout::kRows;
  if (layout.windows == WindowLayout::kColumns) {
    layout.bytes = static_cast<std::size_t>(g.taps()) * static_cast<std::size_t>(g.in_channels);
    layout.count = 1;
  } else if (layout.windows == WindowLayout::kRows) {
    layout.bytes = static_cast<std::size_t>(g.kernel_w) * static_cast<std::size_t>(g.in_channels);
    layout.count = g.kernel_h;
  } else {
    layout.bytes = static_cast<std::size_t>(layout.channels);
    layout.count = g.taps();
  }
  layout.chunk = chunk_of(layout.bytes, unit);
  layout.bytes = rounded_up(layout.bytes, layout.chunk);
  return layout;
}

// --- weights ---------------------------------------------------------------------------------------------------------

// Packs the weights of panels and computes their sums.
class WeightPacker {
 public:
  WeightPacker(const ConvInt8Spec& spec, const SegmentLayout& layout) : spec_(spec), layout_(layout) {
    const WeightView& w = spec.weights;
    // True if each weight is one byte with the zero point that the kernels assume.
    const int harmless = w.is_signed ? 0 : 128;
    const bool is_plain = w.zero.empty() ? w.is_signed
                                         : std::all_of(w.zero.begin(), w.zero.end(),
                                                       [harmless](std::int32_t zero) { return zero == harmless; });
    WeightPanelTask task = task_of({});
    is_direct_ = is_plain && has_taps() && layout.merged_groups == 1 && covers_weights(task);
    if (!is_direct_) rows_.emplace(spec, layout);
  }

  // Packs a panel and returns the weight sums of its channels, which are valid until the next call.
  const WeightSums* pack(const Panel& panel, std::uint8_t* to) {
    if (!is_direct_) return pack_rows(panel, reinterpret_cast<std::int8_t*>(to));
    WeightPanelTask task = task_of(panel);
    std::int32_t sums[kMaxColumns], magnitudes[kMaxColumns];
    task.to = to;
    task.sums = sums;
    task.magnitudes = magnitudes;
    pack_weights_avx512vnni(task);
    for (int column = 0; column < panel.columns; ++column) {
      const int lane = panel.lane_of(column);
      sums_[column] = {sums[lane], magnitudes[lane]};
    }
    return sums_;
  }

 private:
  // True if weights are in the order [tap][input].
  bool has_taps() const {
    const ConvGeometry& g = spec_.geometry;
    const auto row = static_cast<std::size_t>(g.kernel_w) * static_cast<std::size_t>(g.in_channels);
    return !layout_.is_copied() ||
           (layout_.windows == WindowLayout::kRows && layout_.bytes == row && g.in_channels % 4 == 0);
  }

  WeightPanelTask task_of(const Panel& panel) const {
    const ConvGeometry& g = spec_.geometry;
    const WeightView& w = spec_.weights;
    WeightPanelTask task{};
    task.weights = static_cast<const std::uint8_t*>(w.data) + panel.first * w.stride_out;
    task.out = w.stride_out;
    task.in = w.stride_in;
    task.y = w.stride_y;
    task.x = w.stride_x;
    task.columns = panel.columns;
    task.inputs = g.group_in();
    task.kernel_h = g.kernel_h;
    task.kernel_w = g.kernel_w;
    task.zero = w.is_signed ? 0 : 128;
    task.segment_bytes = layout_.is_copied() ? static_cast<std::size_t>(g.in_channels) : layout_.bytes;
    task.full = panel.full;
    task.half = panel.half;
    return task;
  }

  const WeightSums* pack_rows(const Panel& panel, std::int8_t* to) {
    for (int i = 0; i < panel.accumulators(); ++i) {
      const int width = i < panel.full ? kLanes : kLanes / 2;
      for (int lane = 0; lane < width; ++lane) {
        const int column = panel.lane_of(i * kLanes + lane);
        if (column < panel.columns) {
          rows_->read(panel.first + column, lane);
        } else {
          rows_->clear(lane);
        }
        sums_[column] = rows_->sums(lane);
      }
      rows_->interleave(width, to + 64 * i, panel.step_bytes());
    }
    return sums_;
  }

  const ConvInt8Spec& spec_;
  const SegmentLayout& layout_;
  bool is_direct_ = false;
  std::optional<LaneRows> rows_;
  WeightSums sums_[kMaxColumns];
};

void pack_panel(const ConvInt8Spec& spec, const Epilogue& epilogue, WeightPacker* packer, Panel* panel,
                PackedConv* packed) {
  const int farthest_input = std::max(spec.input_zero, 255 - spec.input_zero);
  const WeightSums* sums = packer->pack(*panel, packed->weights.data() + panel->weights);
  LaneParameters* lanes = packed->parameters.as<LaneParameters>() + panel->parameters;
  PanelRequant requant(epilogue);
  panel->offset = epilogue.offset(panel->first);
  for (int column = 0; column < panel->columns; ++column) {
    const int lane = panel->lane_of(column), channel = panel->first + column;
    const std::int64_t bias = spec.bias.empty() ? 0 : spec.bias[static_cast<std::size_t>(channel)];
    // Input bytes are not centered: padding has the value input_zero too, so all taps contribute. The cast wraps modulo
    // 2^32, like the accumulators.
    lanes[lane / kLanes].bias[lane % kLanes] = static_cast<std::int32_t>(bias - spec.input_zero * sums[column].sum);
    requant.add(channel, lane, sums[column].magnitude * farthest_input + std::llabs(bias));
  }
  panel->epilogue = requant.write(lanes);
}

// Divides the channels into panels. Sets the size of their weights.
PackedConv divide(const ConvGeometry& g, int copies, TileUnit unit, std::size_t* weight_bytes) {
  PackedConv packed;
  packed.layout = layout_of(g, copies, unit);
  const SegmentLayout& layout = packed.layout;
  const std::size_t steps = layout.depth() / 4 * static_cast<std::size_t>(layout.copies);

  *weight_bytes = 0;
  std::size_t parameters = 0;
  const int block_out = layout.merged_groups * g.group_out();
  const std::vector<Shape> shapes = shapes_of(block_out, unit);
  for (int block = 0; block < g.groups / layout.merged_groups; ++block) {
    int first = block * block_out;
    const int end = first + block_out;
    for (const Shape& shape : shapes) {
      Panel panel{};
      panel.first = first;
      panel.columns = std::min(shape.columns(), end - first);
      panel.full = shape.full;
      panel.half = shape.half;
      panel.input_offset = static_cast<std::size_t>(block) * static_cast<std::size_t>(layout.channels);
      panel.weights = *weight_bytes;
      panel.weight_bytes = steps * 4 * static_cast<std::size_t>(shape.columns());
      panel.parameters = parameters;
      *weight_bytes += rounded_up(panel.weight_bytes, 64);
      parameters += static_cast<std::size_t>(panel.accumulators());
      first += panel.columns;
      packed.panels.push_back(panel);
    }
  }
  return packed;
}

}  // namespace

PackedConv pack(const ConvInt8Spec& spec, const Epilogue& epilogue, TileUnit unit) {
  std::size_t weight_bytes = 0;
  PackedConv packed = divide(spec.geometry, weight_copies(spec), unit, &weight_bytes);
  // The packing writes no steps after the last input.
  const bool is_padded = packed.layout.bytes >= static_cast<std::size_t>(packed.layout.channels) + 4;
  packed.weights = is_padded ? AlignedBytes::part(weight_bytes) : AlignedBytes::unwritten_part(weight_bytes);
  packed.parameters = AlignedBytes::part(packed.lane_groups() * sizeof(LaneParameters));
  WeightPacker packer(spec, packed.layout);
  for (Panel& panel : packed.panels) pack_panel(spec, epilogue, &packer, &panel, &packed);
  return packed;
}

}  // namespace tpuconvert::avx512

#endif
