#if defined(__x86_64__)

#include "int8/conv/weight_rows.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tpuconvert::avx512 {
namespace {

// Reads the weights of a channel in the order of the segments, and fills the other bytes with zeros.
template <typename Element, typename Value>
void read_elements(const ConvInt8Spec& spec, const SegmentLayout& layout, int channel, Value* row) {
  const ConvGeometry& g = spec.geometry;
  const WeightView& w = spec.weights;
  const int zero = w.zero_of(channel);
  const int within = (channel / g.group_out()) % layout.merged_groups * g.group_in();
  const Element* first = static_cast<const Element*>(w.data) + channel * w.stride_out;
  std::memset(row, 0, layout.depth() * sizeof(Value));
  const int inputs = g.group_in();
  if (layout.is_copied()) {  // few inputs: segments are kernel rows, or the complete window
    const bool has_columns = layout.windows == WindowLayout::kColumns;
    const int step = has_columns ? g.kernel_h * inputs : inputs;
    for (int y = 0; y < g.kernel_h; ++y)
      for (int in = 0; in < inputs; ++in) {
        const Element* from = first + y * w.stride_y + in * w.stride_in;
        Value* to = row + static_cast<std::size_t>(y) * (has_columns ? static_cast<std::size_t>(inputs) : layout.bytes) + in;
        for (int x = 0; x < g.kernel_w; ++x) to[x * step] = static_cast<Value>(from[x * w.stride_x] - zero);
      }
    return;
  }
  for (int y = 0; y < g.kernel_h; ++y) {
    for (int x = 0; x < g.kernel_w; ++x) {
      const Element* from = first + y * w.stride_y + x * w.stride_x;
      Value* to = row + static_cast<std::size_t>(y * g.kernel_w + x) * layout.bytes + within;
      if (w.stride_in == 1) {
        for (int in = 0; in < inputs; ++in) to[in] = static_cast<Value>(from[in] - zero);
      } else {
        for (int in = 0; in < inputs; ++in) to[in] = static_cast<Value>(from[in * w.stride_in] - zero);
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

}  // namespace

int weight_copies(const ConvInt8Spec& spec) {
  const ConvGeometry& g = spec.geometry;
  const WeightView& w = spec.weights;
  const int harmless = w.is_signed ? 0 : 128;
  int largest = 127;  // of v for v >= 0, of -1 - v for v < 0
  for (int channel = 0; channel < g.out_channels; ++channel) {
    if (w.zero_of(channel) == harmless) continue;
    for (int in = 0; in < g.group_in(); ++in)
      for (int y = 0; y < g.kernel_h; ++y)
        for (int x = 0; x < g.kernel_w; ++x) {
          const int value = w.at(channel, in, y, x);
          largest = std::max(largest, value < 0 ? -1 - value : value);
        }
  }
  return (largest + 126) / 127;
}

LaneRows::LaneRows(const ConvInt8Spec& spec, const SegmentLayout& layout)
    : spec_(spec), layout_(layout), rows_(kLanes * layout.depth() * static_cast<std::size_t>(layout.copies)) {
  if (layout.copies > 1) wide_.resize(layout.depth());
}

void LaneRows::read(int channel, int lane) {
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

void LaneRows::clear(int lane) {
  for (int copy = 0; copy < layout_.copies; ++copy) std::memset(row(copy, lane), 0, layout_.depth());
  sums_[lane] = {};
}

void LaneRows::interleave(int lanes, std::int8_t* to, std::size_t step_bytes) const {
  for (int copy = 0; copy < layout_.copies; ++copy) {
    const std::int8_t* from = rows_.data() + static_cast<std::size_t>(copy) * kLanes * layout_.depth();
    for (std::size_t k = 0; k < layout_.depth(); k += 4, to += step_bytes)
      for (int lane = 0; lane < lanes; ++lane)
        std::memcpy(to + 4 * lane, from + static_cast<std::size_t>(lane) * layout_.depth() + k, 4);
  }
}

}  // namespace tpuconvert::avx512

#endif
