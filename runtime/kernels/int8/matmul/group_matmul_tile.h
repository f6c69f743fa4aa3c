// Matmul of INT8 activations with group-quantized weights over the vector types of one instruction set. Included by one
// file per instruction set, after its vector header and its definition of `Words`.
//
// The products of a group are summed exactly in INT32: |sum| <= 256 * 127 * 255 < 2^24, so that its conversion to float32
// is exact as well. Groups are added in ascending order in float32, and multiplications and additions are rounded
// separately. Results are therefore equal on every instruction set and for every number of rows.
#pragma once

#include <cmath>
#include <cstring>

#include "float32/epilogue.h"
#include "float32/unroll.h"
#include "int8/matmul/group_matmul_kernel.h"

namespace tpuconvert {
namespace {

// A block of rows and adjacent panels of columns.
struct Int8Tile {
  Int8Rows rows;
  std::ptrdiff_t depth;        // bytes from one row to the next
  std::ptrdiff_t groups;       // groups from one row to the next
  const std::uint8_t* codes;   // of the first panel
  std::ptrdiff_t panel_codes;  // bytes from one panel to the next
  const float* scale;
  const float* zero;
  std::ptrdiff_t panel_groups;  // scales from one panel to the next
  const float* bias;
  float* y;
  std::ptrdiff_t y_row;
  int columns;
  int group;
};

constexpr std::ptrdiff_t kPanelColumns = kInt8PanelVectors * Float::kLanes;

// Offset of register v of a tile in elements, for elements whose panels have the given distance.
FLOAT_INLINE std::ptrdiff_t register_offset(int v, std::ptrdiff_t panel, std::ptrdiff_t element) {
  return v / kInt8PanelVectors * panel + v % kInt8PanelVectors * Float::kLanes * element;
}

// Codes that are subtracted from the products of a group, in addition to `Words::offset`.
template <int kBits, bool kHasZero>
constexpr int default_zero() {
  return kHasZero ? 0 : 1 << (kBits - 1);
}

template <int kBits, bool kHasZero>
void quantize_rows(const Int8GroupTask& task, const float* x, std::int64_t count, const Int8Rows& rows) {
  constexpr std::int32_t kStart = Words::offset<kBits>() - default_zero<kBits, kHasZero>();
  for (std::int64_t row = 0; row < count; ++row) {
    const float* from = x + row * task.depth;
    std::int8_t* to = rows.values + row * task.padded;
    for (std::int64_t group = 0; group < task.groups; ++group) {
      const std::int64_t first = group * task.group;
      const int length = static_cast<int>(task.depth - first < task.group ? task.depth - first : task.group);
      // The bits of magnitudes are ordered like their values, and NaN is above infinity.
      std::uint32_t largest = 0;
      for (int k = 0; k < length; ++k) {
        std::uint32_t bits;
        std::memcpy(&bits, from + first + k, sizeof bits);
        bits &= 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
      }
      float scale;
      std::memcpy(&scale, &largest, sizeof scale);
      scale *= 1.0f / 127.0f;
      scale = scale < 0x1p-126f ? 0x1p-126f : scale;
      std::int32_t sum = 0;
      if (largest < 0x7F800000u) {
        for (int k = 0; k < length; ++k) {
          const float value = from[first + k] / scale;
          // Ties are rounded away from zero; the largest number below 1/2, so that the sum does not round up to 1.
          const auto nearest = static_cast<std::int32_t>(value + std::copysign(0x1.fffffep-2f, value));
          to[first + k] = static_cast<std::int8_t>(nearest);
          sum += nearest;
        }
      } else {
        std::memset(to + first, 0, static_cast<std::size_t>(length));
        scale = __builtin_nanf("");
      }
      const std::int64_t index = row * task.groups + group;
      rows.scale[index] = scale;
      rows.start[index] = kStart * sum;
      rows.sum[index] = static_cast<float>(sum);
    }
    std::memset(to + task.depth, 0, static_cast<std::size_t>(task.padded - task.depth));
  }
}

template <int kBits, bool kHasZero, int kRows, int kVectors>
__attribute__((noinline)) void int8_tile(const Int8Tile& tile) {
  constexpr std::ptrdiff_t kLanes = Float::kLanes;
  constexpr std::ptrdiff_t kStep = kPanelColumns * kBits;  // bytes of 8 consecutive k of a panel
  Float sum[kRows][kVectors];
  unroll<kVectors>(UNROLLED(v) {
    const Float start = Float::load(tile.bias + v.value * kLanes);
    unroll<kRows>(UNROLLED(r) { sum[r.value][v.value] = start; });
  });
  const std::uint8_t* codes = tile.codes;
  const float *scale = tile.scale, *zero = tile.zero;
  const std::int8_t* values = tile.rows.values;
  std::ptrdiff_t group = 0;
  for (std::ptrdiff_t first = 0; first < tile.depth; first += tile.group, ++group) {
    const std::ptrdiff_t end = tile.depth - first < tile.group ? tile.depth : first + tile.group;
    Words products[kRows][kVectors];
    unroll<kRows>(UNROLLED(r) {
      const Words start = Words::broadcast(tile.rows.start + r.value * tile.groups + group);
      unroll<kVectors>(UNROLLED(v) { products[r.value][v.value] = start; });
    });
    for (std::ptrdiff_t k = first; k < end; k += 8) {
      Words halves[2][kVectors];
      unroll<kVectors>(UNROLLED(v) {
        const std::uint8_t* from = codes + register_offset(v.value, tile.panel_codes, 4);
        if constexpr (kRows == 1) {
          __builtin_prefetch(from + 8 * kStep);
          if constexpr (kBits == 8) __builtin_prefetch(from + 8 * kStep + kPanelColumns * 4);
        }
        halves[0][v.value] = Words::load(from);
        if constexpr (kBits == 4) {
          halves[1][v.value] = halves[0][v.value].high_nibbles();
          halves[0][v.value] = halves[0][v.value].low_nibbles();
        } else {
          halves[1][v.value] = Words::load(from + kPanelColumns * 4);
        }
      });
      unroll<2>(UNROLLED(half) {
        unroll<kRows>(UNROLLED(r) {
          const Words x = Words::broadcast(values + r.value * tile.depth + k + 4 * half.value);
          unroll<kVectors>(
              UNROLLED(v) { products[r.value][v.value].template add_products<kBits>(halves[half.value][v.value], x); });
        });
      });
      codes += kStep;
    }
    unroll<kVectors>(UNROLLED(v) {
      const std::ptrdiff_t offset = register_offset(v.value, tile.panel_groups, 1);
      const Float weight_scale = Float::load(scale + offset);
      unroll<kRows>(UNROLLED(r) {
        const std::ptrdiff_t index = r.value * tile.groups + group;
        Float found = products[r.value][v.value].to_float();
        if constexpr (kHasZero) found = found - Float::load(zero + offset) * Float::broadcast(tile.rows.sum[index]);
        const Float factor = Float::broadcast(tile.rows.scale[index]) * weight_scale;
        sum[r.value][v.value] = sum[r.value][v.value] + found * factor;
      });
    });
    scale += kPanelColumns;
    if constexpr (kHasZero) zero += kPanelColumns;
  }
  unroll<kRows>(UNROLLED(r) {
    float* to = tile.y + r.value * tile.y_row;
    unroll<kVectors>(UNROLLED(v) {
      const int left = tile.columns - v.value * Float::kLanes;
      if (left > 0) store_lanes(sum[r.value][v.value], to + v.value * kLanes, left < kLanes ? left : Float::kLanes);
    });
  });
}

using Int8TileFunction = void (*)(const Int8Tile&);

// Table of the functions for 1, 2, ... rows.
template <int kBits, bool kHasZero, typename Indices>
struct Int8TileTable;
template <int kBits, bool kHasZero, int... kIndices>
struct Int8TileTable<kBits, kHasZero, std::integer_sequence<int, kIndices...>> {
  static constexpr Int8TileFunction of_rows[] = {int8_tile<kBits, kHasZero, kIndices + 1, kInt8PanelVectors>...};
};

template <int kBits, bool kHasZero>
void multiply_panels(const Int8GroupTask& task, std::int64_t first, std::int64_t last, const Int8Rows& rows,
                     std::int64_t count, float* y) {
  using Table = Int8TileTable<kBits, kHasZero, std::make_integer_sequence<int, kInt8TileRows>>;
  Int8Tile tile{};
  tile.depth = task.padded;
  tile.groups = task.groups;
  tile.panel_codes = kPanelColumns * task.column_bytes();
  tile.panel_groups = kPanelColumns * task.groups;
  tile.y_row = task.columns;
  tile.group = task.group;
  for (std::int64_t panel = first; panel < last;) {
    const bool is_double = count == 1 && kInt8DecodesTwoPanels && panel + 1 < last;
    tile.codes = task.codes + panel * tile.panel_codes;
    tile.scale = task.scale + panel * tile.panel_groups;
    tile.zero = kHasZero ? task.zero + panel * tile.panel_groups : nullptr;
    tile.bias = task.bias + panel * kPanelColumns;
    const std::int64_t left = task.columns - panel * kPanelColumns;
    tile.columns = static_cast<int>(left < 2 * kPanelColumns ? left : 2 * kPanelColumns);
    std::int64_t row = 0;
    for (std::int64_t tiles = (count + kInt8TileRows - 1) / kInt8TileRows; tiles > 0; --tiles) {
      const std::int64_t height = (count - row + tiles - 1) / tiles;
      tile.rows.values = rows.values + row * task.padded;
      tile.rows.scale = rows.scale + row * task.groups;
      tile.rows.start = rows.start + row * task.groups;
      tile.rows.sum = rows.sum + row * task.groups;
      tile.y = y + row * task.columns + panel * kPanelColumns;
      if constexpr (kInt8DecodesTwoPanels) {
        if (is_double) int8_tile<kBits, kHasZero, 1, 2 * kInt8PanelVectors>(tile);
      }
      if (!is_double) Table::of_rows[height - 1](tile);
      row += height;
    }
    panel += is_double ? 2 : 1;
  }
}

void quantize(const Int8GroupTask& task, const float* x, std::int64_t count, const Int8Rows& rows) {
  const bool has_zero = task.zero != nullptr;
  const auto function = task.bits == 4 ? (has_zero ? quantize_rows<4, true> : quantize_rows<4, false>)
                                       : (has_zero ? quantize_rows<8, true> : quantize_rows<8, false>);
  function(task, x, count, rows);
}

void multiply(const Int8GroupTask& task, std::int64_t first, std::int64_t last, const Int8Rows& rows,
              std::int64_t count, float* y) {
  const bool has_zero = task.zero != nullptr;
  const auto function = task.bits == 4 ? (has_zero ? multiply_panels<4, true> : multiply_panels<4, false>)
                                       : (has_zero ? multiply_panels<8, true> : multiply_panels<8, false>);
  function(task, first, last, rows, count, y);
}

}  // namespace
}  // namespace tpuconvert
