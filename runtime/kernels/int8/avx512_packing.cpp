#if defined(__x86_64__)

#include "int8/avx512_packing.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "int8/avx512_float_form.h"

namespace tpuconvert::avx512 {
namespace {

std::size_t rounded_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

int zero_of(const WeightView& weights, int channel) {
  return weights.zero.empty() ? 0 : weights.zero[weights.zero.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

// --- shapes -------------------------------------------------------------------------------------------------------------

struct Shape {
  int full;
  bool half;

  int columns() const { return 16 * full + (half ? 8 : 0); }
};

// Panels for neighbouring channels: wide ones first, and little that is computed for channels that are not there.
std::vector<Shape> shapes_of(int channels) {
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

// Groups of few output channels share a panel, with zero weights for the input channels of the others.
int groups_per_panel(const ConvGeometry& g) {
  int merged = std::max(1, std::min(g.groups, kLanes / g.group_out()));
  while (g.groups % merged != 0) --merged;
  return merged;
}

SegmentLayout layout_of(const ConvInt8Spec& spec) {
  const ConvGeometry& g = spec.geometry;
  SegmentLayout layout;
  layout.merged_groups = groups_per_panel(g);
  layout.channels = layout.merged_groups * g.group_in();
  layout.copies = weight_copies(spec);
  layout.is_padded_row = g.groups == 1 && g.kernel_w > 1 && g.dilation_w == 1 && g.in_channels % 4 != 0;
  if (layout.is_padded_row) {
    layout.bytes = rounded_up(static_cast<std::size_t>(g.kernel_w) * static_cast<std::size_t>(g.in_channels), 4);
    layout.count = g.kernel_h;
  } else {
    layout.bytes = rounded_up(static_cast<std::size_t>(layout.channels), 4);
    layout.count = g.taps();
  }
  return layout;
}

// --- one output channel -------------------------------------------------------------------------------------------------

// Weights of a channel in the order of the segments, everything else zero.
template <typename Element, typename Value>
void read_elements(const ConvInt8Spec& spec, const SegmentLayout& layout, int channel, Value* row) {
  const ConvGeometry& g = spec.geometry;
  const WeightView& w = spec.weights;
  const int zero = zero_of(w, channel);
  const int within = (channel / g.group_out()) % layout.merged_groups * g.group_in();
  const Element* first = static_cast<const Element*>(w.data) + channel * w.stride_out;
  std::memset(row, 0, layout.depth() * sizeof(Value));
  for (int y = 0; y < g.kernel_h; ++y) {
    for (int x = 0; x < g.kernel_w; ++x) {
      Value* to = layout.is_padded_row ? row + static_cast<std::size_t>(y) * layout.bytes + x * g.in_channels
                                       : row + static_cast<std::size_t>(y * g.kernel_w + x) * layout.bytes + within;
      const Element* from = first + y * w.stride_y + x * w.stride_x;
      const std::ptrdiff_t stride = w.stride_in;
      const int count = g.group_in();
      if (stride == 1) {
        for (int in = 0; in < count; ++in) to[in] = static_cast<Value>(from[in] - zero);
      } else {
        for (int in = 0; in < count; ++in) to[in] = static_cast<Value>(from[in * stride] - zero);
      }
    }
  }
}

template <typename Value>
void read_channel(const ConvInt8Spec& spec, const SegmentLayout& layout, int channel, Value* row) {
  if (spec.weights.is_signed) {
    read_elements<std::int8_t>(spec, layout, channel, row);
  } else {
    read_elements<std::uint8_t>(spec, layout, channel, row);
  }
}

struct WeightSums {
  std::int64_t sum = 0;
  std::int64_t magnitude = 0;
};

template <typename Value>
void add_up(const Value* row, std::size_t count, WeightSums* sums) {
  constexpr std::size_t kBlock = 1 << 20;  // 2^20 * 255 fits 32 bits
  for (std::size_t start = 0; start < count; start += kBlock) {
    const std::size_t end = std::min(count, start + kBlock);
    std::int32_t sum = 0, magnitude = 0;
    for (std::size_t i = start; i < end; ++i) {
      sum += row[i];
      magnitude += std::abs(static_cast<int>(row[i]));
    }
    sums->sum += sum;
    sums->magnitude += magnitude;
  }
}

// The rows of one accumulator: up to 16 channels, in every copy.
class LaneRows {
 public:
  LaneRows(const ConvInt8Spec& spec, const SegmentLayout& layout)
      : spec_(spec), layout_(layout), rows_(kLanes * layout.depth() * static_cast<std::size_t>(layout.copies)) {
    if (layout.copies > 1) wide_.resize(layout.depth());
  }

  void read(int channel, int lane) {
    const std::size_t depth = layout_.depth();
    WeightSums& sums = sums_[lane];
    sums = {};
    if (layout_.copies == 1) {
      read_channel(spec_, layout_, channel, row(0, lane));
      add_up(row(0, lane), depth, &sums);
      return;
    }
    read_channel(spec_, layout_, channel, wide_.data());
    add_up(wide_.data(), depth, &sums);
    for (std::size_t i = 0; i < depth; ++i) {
      int rest = wide_[i];
      for (int copy = 0; copy < layout_.copies; ++copy) {
        const int summand = std::clamp(rest, -128, 127);
        row(copy, lane)[i] = static_cast<std::int8_t>(summand);
        rest -= summand;
      }
    }
  }

  void clear(int lane) {
    for (int copy = 0; copy < layout_.copies; ++copy) std::memset(row(copy, lane), 0, layout_.depth());
    sums_[lane] = {};
  }

  // [copy][depth / 4][lane][4], one step every `step_bytes`.
  void interleave(int lanes, std::int8_t* to, std::size_t step_bytes) const {
    for (int copy = 0; copy < layout_.copies; ++copy) {
      const std::int8_t* from = rows_.data() + static_cast<std::size_t>(copy) * kLanes * layout_.depth();
      for (std::size_t k = 0; k < layout_.depth(); k += 4, to += step_bytes)
        for (int lane = 0; lane < lanes; ++lane)
          std::memcpy(to + 4 * lane, from + static_cast<std::size_t>(lane) * layout_.depth() + k, 4);
    }
  }

  const WeightSums& sums(int lane) const { return sums_[lane]; }

 private:
  std::int8_t* row(int copy, int lane) {
    return rows_.data() + (static_cast<std::size_t>(copy) * kLanes + static_cast<std::size_t>(lane)) * layout_.depth();
  }

  const ConvInt8Spec& spec_;
  const SegmentLayout& layout_;
  std::vector<std::int8_t> rows_;
  std::vector<std::int16_t> wide_;
  WeightSums sums_[kLanes];
};

// --- parameters ---------------------------------------------------------------------------------------------------------

// Forms of the channels of one panel, and the parameters once the form of all of them is known.
class PanelForms {
 public:
  void add(const FloatForms& forms, int lane, LaneParameters* lanes) {
    form_ = std::max(form_, forms.cheapest);
    entries_.push_back({forms, lane, lanes});
  }

  TileForm write() const {
    for (const Entry& entry : entries_) {
      LaneParameters& lanes = *entry.lanes;
      if (form_ == TileForm::kOneFactor) {
        lanes.factor[entry.lane] = entry.forms.factor;
        lanes.second[entry.lane] = entry.forms.addend;
      } else if (form_ != TileForm::kSums) {
        lanes.factor[entry.lane] = entry.forms.kinked.high_part;
        lanes.second[entry.lane] = entry.forms.kinked.low_part;
        lanes.kink[entry.lane] = entry.forms.kinked.kink;
      }
    }
    return form_;
  }

  // The form with one factor has offsets of its own in every channel; the others have one for all.
  void rule_out_common_offset() {
    if (form_ != TileForm::kOneFactor) form_ = TileForm::kSums;
  }

 private:
  struct Entry {
    FloatForms forms;
    int lane;
    LaneParameters* lanes;
  };

  TileForm form_ = TileForm::kOneFactor;
  std::vector<Entry> entries_;
};

void pack_panel(const ConvInt8Spec& spec, const Epilogue& epilogue, LaneRows* rows, Panel* panel, PackedConv* packed) {
  const int farthest_input = std::max(spec.input_zero, 255 - spec.input_zero);
  const std::size_t step_bytes = static_cast<std::size_t>(64 * panel->full + (panel->half ? 32 : 0));
  PanelForms forms;
  panel->offset = epilogue.offset(panel->first);
  bool offsets_differ = false;
  for (int i = 0; i < panel->accumulators(); ++i) {
    LaneParameters* lanes = packed->parameters.as<LaneParameters>() + panel->parameters + i;
    const int width = i < panel->full ? kLanes : kLanes / 2;
    for (int lane = 0; lane < width; ++lane) {
      const int column = i * kLanes + lane;
      if (column >= panel->columns) {
        rows->clear(lane);
        continue;
      }
      const int channel = panel->first + column;
      rows->read(channel, lane);
      const WeightSums& sums = rows->sums(lane);
      const std::int64_t bias = spec.bias.empty() ? 0 : spec.bias[static_cast<std::size_t>(channel)];
      // The bytes are not centred: padding has the value input_zero too, so all taps count. Wraps like the sums do.
      lanes->bias[lane] = static_cast<std::int32_t>(bias - spec.input_zero * sums.sum);
      forms.add(prove_forms(epilogue, channel, sums.magnitude * farthest_input + std::llabs(bias)), lane, lanes);
      offsets_differ |= epilogue.offset(channel) != panel->offset;
    }
    rows->interleave(width, packed->weights.as<std::int8_t>() + panel->weights + 64 * i, step_bytes);
  }
  if (offsets_differ) forms.rule_out_common_offset();
  panel->form = forms.write();
}

}  // namespace

int weight_copies(const ConvInt8Spec& spec) {
  const ConvGeometry& g = spec.geometry;
  const WeightView& w = spec.weights;
  const int harmless = w.is_signed ? 0 : 128;
  int largest = 127;  // of v and -1 - v
  for (int channel = 0; channel < g.out_channels; ++channel) {
    if (zero_of(w, channel) == harmless) continue;
    for (int in = 0; in < g.group_in(); ++in)
      for (int y = 0; y < g.kernel_h; ++y)
        for (int x = 0; x < g.kernel_w; ++x) {
          const int value = w.at(channel, in, y, x);
          largest = std::max(largest, value < 0 ? -1 - value : value);
        }
  }
  return (largest + 126) / 127;
}

PackedConv pack(const ConvInt8Spec& spec, const Epilogue& epilogue) {
  const ConvGeometry& g = spec.geometry;
  PackedConv packed;
  packed.layout = layout_of(spec);
  const SegmentLayout& layout = packed.layout;
  const std::size_t steps = layout.depth() / 4 * static_cast<std::size_t>(layout.copies);

  std::size_t weight_bytes = 0, parameters = 0;
  const int block_out = layout.merged_groups * g.group_out();
  const std::vector<Shape> shapes = shapes_of(block_out);
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
      panel.weights = weight_bytes;
      panel.weight_bytes = steps * 4 * static_cast<std::size_t>(shape.columns());
      panel.parameters = parameters;
      weight_bytes += rounded_up(panel.weight_bytes, 64);
      parameters += static_cast<std::size_t>(panel.accumulators());
      first += panel.columns;
      packed.panels.push_back(panel);
    }
  }
  packed.weights = AlignedBytes(weight_bytes);
  packed.parameters = AlignedBytes(parameters * sizeof(LaneParameters));
  LaneRows rows(spec, layout);
  for (Panel& panel : packed.panels) pack_panel(spec, epilogue, &rows, &panel, &packed);
  return packed;
}

}  // namespace tpuconvert::avx512

#endif
