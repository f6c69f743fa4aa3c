// Matmul with group-quantized weights over the vector types of one instruction set. Included by one file per instruction
// set, after its vector header and its definition of `Nibbles`.
//
// A weight is dequantized in float32: (code - zero) * scale, each operation rounded once. Every sum is one chain of fused
// multiply-adds that starts with the bias and follows k, as in matmul_tile.h. Results are therefore equal on every
// instruction set, for every number of rows, and equal to those of a float matmul with the dequantized weights.
#pragma once

#include "float32/epilogue.h"
#include "float32/matmul/group_matmul_kernel.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

// A block of rows and adjacent registers of columns of one panel.
struct GroupTile {
  const float* x;             // first row
  std::ptrdiff_t x_row;       // floats from one row to the next
  const std::uint8_t* codes;  // of the first register
  std::ptrdiff_t width;       // columns of the panel: elements from one word or byte of k to the next
  const float* scale;
  const float* zero;
  const float* bias;
  float* y;
  std::ptrdiff_t y_row;
  int columns;
  std::int64_t depth, group;
};

// Formats of weights with an inner loop of their own: 8 bits, with zero points or 128, and 4 bits with zero points or 8.
enum class Codes { kBytes, kNibbles, kCenteredNibbles };

// Reads the codes of consecutive k for kVectors registers of columns.
template <Codes kCodes, int kVectors>
struct CodeReader {
  Float scale[kVectors], zero[kVectors];
  Nibbles words[kVectors];

  FLOAT_INLINE void start_group(const float* scales, const float* zeros) {
    unroll<kVectors>(UNROLLED(v) {
      scale[v.value] = Float::load(scales + v.value * Float::kLanes);
      if constexpr (kCodes != Codes::kCenteredNibbles)
        zero[v.value] = zeros == nullptr ? Float::broadcast(128.0f) : Float::load(zeros + v.value * Float::kLanes);
    });
  }
  FLOAT_INLINE void start_block(const std::uint8_t* codes) {
    if constexpr (kCodes != Codes::kBytes)
      unroll<kVectors>(UNROLLED(v) { words[v.value] = Nibbles::load(codes + v.value * Float::kLanes * 4); });
  }
  // Weights of the next k, for register v; `codes` is the address of the bytes of this k.
  FLOAT_INLINE Float next(int v, const std::uint8_t* codes) {
    Float code;
    if constexpr (kCodes == Codes::kBytes) {
      code = Float::of_integers(codes + v * Float::kLanes) - zero[v];
    } else if constexpr (kCodes == Codes::kNibbles) {
      code = words[v].value() - zero[v];
    } else {
      code = words[v].centered_value();
    }
    if constexpr (kCodes != Codes::kBytes) words[v].advance();
    return code * scale[v];
  }
};

// Calls use(k, weights) for all k in order, with the weights of k in kVectors registers. kAtOnce of eight k are unrolled:
// the more there is to do for each k, the less is gained by more of them, and the longer the compilation takes.
template <Codes kCodes, int kVectors, int kAtOnce, typename Use>
FLOAT_INLINE void for_each_k(const GroupTile& tile, Use&& use) {
  constexpr int kBlock = 8;
  static_assert(kBlock % kAtOnce == 0);
  const std::uint8_t* codes = tile.codes;
  const float *scale = tile.scale, *zero = tile.zero;
  constexpr int kBits = kCodes == Codes::kBytes ? 8 : 4;
  const std::ptrdiff_t step = kBits == 8 ? tile.width : 0;  // bytes from one k to the next
  const std::ptrdiff_t block_bytes = kBits == 8 ? tile.width * kBlock : tile.width * 4;
  CodeReader<kCodes, kVectors> reader;
  for (std::int64_t first = 0; first < tile.depth; first += tile.group) {
    const std::int64_t end = tile.depth - first < tile.group ? tile.depth : first + tile.group;
    reader.start_group(scale, zero);
    scale += tile.width;
    if (zero != nullptr) zero += tile.width;
    std::int64_t k = first;
    for (; k + kBlock <= end; k += kBlock) {
      reader.start_block(codes);
      for (std::ptrdiff_t line = 0; line < kVectors * Float::kLanes * kBits; line += 64)
        __builtin_prefetch(codes + 4 * block_bytes + line);
      for (int done = 0; done < kBlock; done += kAtOnce) {
        const std::uint8_t* const from = codes + done * step;
        unroll<kAtOnce>(UNROLLED(i) {
          Float weights[kVectors];
          unroll<kVectors>(UNROLLED(v) { weights[v.value] = reader.next(v.value, from + i.value * step); });
          use(k + done + i.value, weights);
        });
      }
      codes += block_bytes;
    }
    if (k == end) continue;
    reader.start_block(codes);
    for (; k < end; ++k, codes += step) {
      Float weights[kVectors];
      unroll<kVectors>(UNROLLED(v) { weights[v.value] = reader.next(v.value, codes); });
      use(k, weights);
    }
  }
}

template <Codes kCodes, int kRows, int kVectors>
__attribute__((noinline)) void group_tile(const GroupTile& tile) {
  Float sum[kRows][kVectors];
  unroll<kVectors>(UNROLLED(v) {
    const Float start = Float::load(tile.bias + v.value * Float::kLanes);
    unroll<kRows>(UNROLLED(r) { sum[r.value][v.value] = start; });
  });
  const float* rows[kRows];
  unroll<kRows>(UNROLLED(r) { rows[r.value] = tile.x + r.value * tile.x_row; });
  constexpr int kAtOnce = kRows * kVectors <= 4 ? 8 : 2;
  for_each_k<kCodes, kVectors, kAtOnce>(tile, [&](std::int64_t k, const Float(&weights)[kVectors])
                                                  __attribute__((always_inline)) {
    unroll<kRows>(UNROLLED(r) {
      const Float x = Float::broadcast(rows[r.value][k]);
      unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value] = fused(x, weights[v.value], sum[r.value][v.value]); });
    });
  });
  unroll<kRows>(UNROLLED(r) {
    float* to = tile.y + r.value * tile.y_row;
    unroll<kVectors - 1>(UNROLLED(v) { sum[r.value][v.value].store(to + v.value * Float::kLanes); });
    store_lanes(sum[r.value][kVectors - 1], to + (kVectors - 1) * Float::kLanes,
                tile.columns - (kVectors - 1) * Float::kLanes);
  });
}

using GroupTileFunction = void (*)(const GroupTile&);

// Registers for the sums of a tile: more rows have fewer registers of columns.
constexpr int vectors_of_rows(int rows) { return rows <= kGroupSums / 4 ? 4 : rows <= kGroupSums / 2 ? 2 : 1; }
constexpr int kMostRows = kGroupSums > 8 ? 8 : kGroupSums;

template <Codes kCodes, int kRows, int kVectors>
constexpr GroupTileFunction group_tile_function() {
  if constexpr (kVectors <= vectors_of_rows(kRows)) {
    return group_tile<kCodes, kRows, kVectors>;
  } else {
    return nullptr;
  }
}

// Table of the functions for 1, 2, ... rows.
template <Codes kCodes, int kVectors, typename Indices>
struct GroupTileTable;
template <Codes kCodes, int kVectors, int... kIndices>
struct GroupTileTable<kCodes, kVectors, std::integer_sequence<int, kIndices...>> {
  static constexpr GroupTileFunction of_rows[] = {group_tile_function<kCodes, kIndices + 1, kVectors>()...};
};

// Sets the fields for the columns of a panel that begin with register `start`.
FLOAT_INLINE GroupTile tile_of(const GroupMatmulTask& task, std::int64_t panel, int start) {
  constexpr int kLanes = Float::kLanes, kPanel = kGroupPanelVectors * kLanes;
  const std::int64_t rest = task.matmul.columns - panel * kPanel;
  GroupTile tile{};
  tile.width = rest < kPanel ? (rest + kLanes - 1) / kLanes * kLanes : kPanel;
  tile.codes = task.codes + panel * kPanel * task.column_bytes() + start * kLanes * (task.bits == 4 ? 4 : 1);
  const std::ptrdiff_t first = panel * kPanel * task.groups + start * kLanes;
  tile.scale = task.scale + first;
  tile.zero = task.zero == nullptr ? nullptr : task.zero + first;
  tile.bias = task.matmul.bias + panel * kPanel + start * kLanes;
  tile.columns = static_cast<int>(rest - start * kLanes);
  tile.x_row = task.matmul.left_row;
  tile.y_row = task.matmul.out_row;
  tile.depth = task.matmul.depth;
  tile.group = task.group;
  return tile;
}

template <Codes kCodes>
void decode_panels(const GroupMatmulTask& task, std::int64_t first, std::int64_t last, const float* x, float* y) {
  using Rows = std::make_integer_sequence<int, kMostRows>;
  constexpr int kLanes = Float::kLanes;
  for (std::int64_t panel = first; panel < last; ++panel) {
    for (std::int64_t m = 0; m < task.matmul.rows; m += kMostRows) {
      const std::int64_t left = task.matmul.rows - m;
      const int rows = static_cast<int>(left < kMostRows ? left : kMostRows);
      for (int start = 0;;) {
        GroupTile tile = tile_of(task, panel, start);
        const int registers = static_cast<int>(tile.width / kLanes) - start;
        if (registers <= 0) break;
        const int most = vectors_of_rows(rows);
        const int vectors = registers >= 4 && most >= 4 ? 4 : registers >= 2 && most >= 2 ? 2 : 1;
        tile.x = x + m * tile.x_row;
        tile.y = y + m * tile.y_row + (panel * kGroupPanelVectors + start) * kLanes;
        tile.columns = tile.columns < vectors * kLanes ? tile.columns : vectors * kLanes;
        const GroupTileFunction* const functions = vectors == 4   ? GroupTileTable<kCodes, 4, Rows>::of_rows
                                                   : vectors == 2 ? GroupTileTable<kCodes, 2, Rows>::of_rows
                                                                  : GroupTileTable<kCodes, 1, Rows>::of_rows;
        functions[rows - 1](tile);
        start += vectors;
      }
    }
  }
}

// Dequantizes one or two registers of columns to rows whose distance is `pitch` floats.
template <Codes kCodes>
void dequantize_columns(const GroupTile& tile, int count, std::ptrdiff_t pitch, float* to) {
  if (count == 2) {
    for_each_k<kCodes, 2, 8>(tile, [&](std::int64_t k, const Float(&weights)[2]) __attribute__((always_inline)) {
      weights[0].store(to + k * pitch);
      weights[1].store(to + k * pitch + Float::kLanes);
    });
  } else {
    for_each_k<kCodes, 1, 8>(tile, [&](std::int64_t k, const Float(&weights)[1]) __attribute__((always_inline)) {
      weights[0].store(to + k * pitch);
    });
  }
}

void decode(const GroupMatmulTask& task, std::int64_t first, std::int64_t last, const float* x, float* y) {
  const auto function = task.bits == 8          ? decode_panels<Codes::kBytes>
                        : task.zero != nullptr ? decode_panels<Codes::kNibbles>
                                               : decode_panels<Codes::kCenteredNibbles>;
  function(task, first, last, x, y);
}

void dequantize(const GroupMatmulTask& task, std::int64_t panel, int start, int count, std::ptrdiff_t pitch, float* to) {
  const auto function = task.bits == 8          ? dequantize_columns<Codes::kBytes>
                        : task.zero != nullptr ? dequantize_columns<Codes::kNibbles>
                                               : dequantize_columns<Codes::kCenteredNibbles>;
  for (int done = 0; done < count; done += 2)
    function(tile_of(task, panel, start + done), count - done < 2 ? 1 : 2, pitch, to + done * Float::kLanes);
}

}  // namespace
}  // namespace tpuconvert
