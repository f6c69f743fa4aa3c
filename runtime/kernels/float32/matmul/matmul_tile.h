// Matmul and conv kernels over the vector types of one instruction set. Included by one file per instruction set, after
// its vector header.
//
// Every sum is one chain of fused multiply-adds that starts with the bias and follows the order kernel row, kernel
// column, channel. The results are therefore equal on every instruction set and for any division of the work.
#pragma once

#include <cstring>

#include "float32/epilogue.h"
#include "float32/matmul/matmul_kernel.h"
#include "float32/unroll.h"

namespace tpuconvert {
namespace {

struct Tile {
  const float* const* rows;  // [segment][row], address of the segment
  std::ptrdiff_t segments;
  std::ptrdiff_t depth;      // length of a segment in floats
  const float* weights;      // [segment][depth], each element a packed row of columns
  const float* bias;
  const float* residual;
  float* output;
  std::ptrdiff_t pitch;      // floats from one row of the result to the next
  int columns;
  Limits limits;
  const char* ahead;         // memory to prefetch, `ahead_step` bytes per float of a segment
  std::ptrdiff_t ahead_step;
};

template <typename Sum, int kRows, int kVectors>
FLOAT_INLINE void accumulate(const Tile& tile, Sum (&sum)[kRows][kVectors]) {
  unroll<kVectors>(UNROLLED(v) {
    const Sum start = Sum::load(tile.bias + v.value * Sum::kLanes);
    unroll<kRows>(UNROLLED(r) { sum[r.value][v.value] = start; });
  });
  const float* weights = tile.weights;
  const float* const* rows = tile.rows;
  const char* ahead = tile.ahead;
  for (std::ptrdiff_t segment = 0; segment < tile.segments; ++segment, rows += kRows) {
    const float* row[kRows];
    unroll<kRows>(UNROLLED(r) { row[r.value] = rows[r.value] + tile.depth; });
    std::ptrdiff_t k = -tile.depth;
    do {
      Sum weight[kVectors];
      unroll<kVectors>(UNROLLED(v) { weight[v.value] = Sum::load(weights + v.value * Sum::kLanes); });
      unroll<kRows>(UNROLLED(r) {
        const Sum x = Sum::broadcast(row[r.value][k]);
        unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value] = fused(x, weight[v.value], sum[r.value][v.value]); });
      });
      weights += kVectors * Sum::kLanes;
      __builtin_prefetch(ahead, 0, 2);
      ahead += tile.ahead_step;
    } while (++k != 0);
  }
}

template <int kRows, int kVectors>
FLOAT_INLINE void store_tile(const Tile& tile, Float (&sum)[kRows][kVectors]) {
  constexpr int kLanes = Float::kLanes;
  if (tile.residual != nullptr) {
    unroll<kRows>(UNROLLED(r) {
      unroll<kVectors>(UNROLLED(v) {
        const float* from = tile.residual + r.value * tile.pitch + v.value * kLanes;
        sum[r.value][v.value] = sum[r.value][v.value] + load_lanes(from, stored_lanes<kVectors>(tile.columns, v.value));
      });
    });
  }
  if (tile.limits.are_set) {
    const LimitLanes limited(tile.limits);
    unroll<kRows>(UNROLLED(r) {
      unroll<kVectors>(UNROLLED(v) { sum[r.value][v.value] = limited(sum[r.value][v.value]); });
    });
  }
  unroll<kRows>(UNROLLED(r) {
    float* to = tile.output + r.value * tile.pitch;
    unroll<kVectors>(UNROLLED(v) {
      store_lanes(sum[r.value][v.value], to + v.value * kLanes, stored_lanes<kVectors>(tile.columns, v.value));
    });
  });
}

template <int kRows, int kVectors>
FLOAT_INLINE void bring_lines(const float* from, std::ptrdiff_t pitch) {
  unroll<kRows>(UNROLLED(r) {
    unroll<kVectors>(UNROLLED(v) { __builtin_prefetch(from + r.value * pitch + v.value * Float::kLanes); });
  });
}

template <int kRows, int kVectors>
__attribute__((noinline)) void fast_tile(const Tile& tile) {
  // Prefetch the cache lines of the result and the residual during the accumulation.
  bring_lines<kRows, kVectors>(tile.output, tile.pitch);
  if (tile.residual != nullptr) bring_lines<kRows, kVectors>(tile.residual, tile.pitch);
  Float sum[kRows][kVectors];
  accumulate(tile, sum);
  store_tile(tile, sum);
}

template <int kRows, int kVectors>
__attribute__((noinline)) void precise_tile(const Tile& tile) {
  constexpr int kLanes = Float::kLanes, kHalves = kLanes / Double::kLanes;
  Double sum[kRows][kVectors * kHalves];
  accumulate(tile, sum);
  alignas(64) float rounded[kRows][kVectors * kLanes];
  Float result[kRows][kVectors];
  unroll<kRows>(UNROLLED(r) {
    unroll<kVectors * kHalves>(UNROLLED(v) { sum[r.value][v.value].store(rounded[r.value] + v.value * Double::kLanes); });
    unroll<kVectors>(UNROLLED(v) { result[r.value][v.value] = Float::load(rounded[r.value] + v.value * kLanes); });
  });
  store_tile(tile, result);
}

using TileFunction = void (*)(const Tile&);

template <bool kPrecise, int kRows, int kVectors>
constexpr TileFunction tile_function() {
  if constexpr (kPrecise) {
    return precise_tile<kRows, kVectors>;
  } else {
    return fast_tile<kRows, kVectors>;
  }
}

// Table of kernels for 1, 2, ... rows.
template <bool kPrecise, int kVectors, typename Indices>
struct TileTable;
template <bool kPrecise, int kVectors, int... kIndices>
struct TileTable<kPrecise, kVectors, std::integer_sequence<int, kIndices...>> {
  static constexpr TileFunction of_rows[] = {tile_function<kPrecise, kIndices + 1, kVectors>()...};
};

// Computes the addresses of the segments that a tile of rows reads.
template <int kMost>
struct TileSource {
  const MatmulConvTask& task;
  const float** addresses;  // [taps][kMost]
  float* gathered;          // [kMost], gathered rows
  std::ptrdiff_t segments = 0, depth = 0;

  // Sets the addresses for rows m..m+count-1 of the result.
  FLOAT_INLINE void set(const float* input, std::int64_t m, int count) {
    int y[kMost], x[kMost];
    const float* image[kMost];
    bool is_inside = true;
    const std::int64_t plane = static_cast<std::int64_t>(task.out_height) * task.out_width;
    std::int64_t n = m / plane, oy = m % plane / task.out_width, ox = m % task.out_width;
    const int reach_y = (task.kernel_h - 1) * task.dilation_h, reach_x = (task.kernel_w - 1) * task.dilation_w;
    for (int r = 0; r < count; ++r) {
      image[r] = input + n * task.in_image;
      y[r] = static_cast<int>(oy) * task.stride_h - task.pad_top;
      x[r] = static_cast<int>(ox) * task.stride_w - task.pad_left;
      is_inside = is_inside && y[r] >= 0 && x[r] >= 0 && y[r] + reach_y < task.height && x[r] + reach_x < task.width;
      if (++ox == task.out_width) {
        ox = 0;
        if (++oy == task.out_height) oy = 0, ++n;
      }
    }
    if (task.is_dense && (is_inside || task.gathers == Gathers::kBorder)) {
      segments = task.kernel_h;
      depth = static_cast<std::ptrdiff_t>(task.kernel_w) * task.depth;
      for (int i = 0; i < task.kernel_h; ++i)
        for (int r = 0; r < count; ++r)
          addresses[i * count + r] = image[r] + (y[r] + i * task.dilation_h) * task.in_row + x[r] * task.in_pixel;
      if (!is_inside) copy_padded(image, y, x, count);
    } else {
      segments = task.taps();
      depth = task.depth;
      const float** next = addresses;
      for (int i = 0; i < task.kernel_h; ++i)
        for (int j = 0; j < task.kernel_w; ++j)
          for (int r = 0; r < count; ++r) {
            const int row = y[r] + i * task.dilation_h, column = x[r] + j * task.dilation_w;
            const bool is_there = row >= 0 && row < task.height && column >= 0 && column < task.width;
            *next++ = is_there ? image[r] + row * task.in_row + column * task.in_pixel : task.zeros;
          }
    }
    if (task.gathers == Gathers::kTile || task.gathers == Gathers::kOnce) gather(count);
  }

  // Sets the addresses to rows that were gathered before, at `from`.
  FLOAT_INLINE void set_gathered(const float* from, int count) {
    depth = static_cast<std::ptrdiff_t>(task.taps()) * task.depth;
    segments = 1;
    for (int r = 0; r < count; ++r) addresses[r] = from + r * gathered_pitch(depth);
  }

 private:
  // Copies kernel rows that cross the edge of the image, with zeros in the padding.
  FLOAT_INLINE void copy_padded(const float* const* image, const int* y, const int* x, int count) {
    for (int r = 0; r < count; ++r) {
      const int first = x[r] < 0 ? -x[r] : 0, beyond = x[r] + task.kernel_w - task.width;
      const int last = task.kernel_w - (beyond > 0 ? beyond : 0);
      for (int i = 0; i < task.kernel_h; ++i) {
        const int row = y[r] + i * task.dilation_h;
        if (row < 0 || row >= task.height || first >= last) {
          addresses[i * count + r] = task.zeros;
        } else if (first > 0 || last < task.kernel_w) {
          float* to = gathered + (i * kMost + r) * depth;
          for (std::ptrdiff_t k = 0; k < first * task.depth; ++k) to[k] = 0;
          const float* from = image[r] + row * task.in_row + x[r] * task.in_pixel;
          for (std::ptrdiff_t k = first * task.depth; k < last * task.depth; ++k) to[k] = from[k];
          for (std::ptrdiff_t k = last * task.depth; k < depth; ++k) to[k] = 0;
          addresses[i * count + r] = to;
        }
      }
    }
  }

  FLOAT_INLINE void gather(int count) {
    const std::ptrdiff_t whole = segments * depth;
    // An odd number of cache lines, so that consecutive rows use different sets of the cache.
    const std::ptrdiff_t pitch = gathered_pitch(whole);
    for (int r = 0; r < count; ++r) {
      float* to = gathered + r * pitch;
      for (std::ptrdiff_t segment = 0; segment < segments; ++segment, to += depth)
        std::memcpy(to, addresses[segment * count + r], static_cast<std::size_t>(depth) * sizeof(float));
    }
    for (int r = 0; r < count; ++r) addresses[r] = gathered + r * pitch;
    segments = 1;
    depth = whole;
  }

 public:
  FLOAT_INLINE static std::ptrdiff_t gathered_pitch(std::ptrdiff_t floats) { return ((floats + 15) / 16 | 1) * 16; }
};

template <int kVectors>
FLOAT_INLINE std::int64_t run_bytes(const MatmulConvTask& task, const PanelRun& run) {
  const std::int64_t floats = static_cast<std::int64_t>(task.taps()) * task.depth * Float::kLanes;
  return floats * kVectors * (run.end - run.begin) * 4;
}

// Applies the fused operators to the columns of a run of panels while the results are in the cache.
FLOAT_INLINE void apply_tail(const MatmulConvTask& task, const PanelRun& run, const float* residual, float* output,
                              std::ptrdiff_t place, int count) {
  const MatmulPanel& last = task.panels[run.end - 1];
  const int first = task.panels[run.begin].first;
  for (int r = 0; r < count; ++r) {
    const std::ptrdiff_t at = place + r * task.out_pixel + first;
    const float* const operands[] = {output + at, residual == nullptr ? nullptr : residual + at};
    const bool are_single[] = {false, false};
    task.run_tail({task.tail, task.tail_count, operands, are_single, output + at, last.first + last.columns - first});
  }
}

template <bool kPrecise, int kMost, int kVectors>
void run_product(const MatmulConvTask& task, const MatmulPart& part, const float* input, const float* residual,
                 float* output, std::uint8_t* scratch) {
  using Rows = std::make_integer_sequence<int, kMost>;
  const TileFunction* const whole = TileTable<kPrecise, kVectors, Rows>::of_rows;
  const TileFunction* const narrow = TileTable<kPrecise, 1, Rows>::of_rows;
  TileSource<kMost> source{task, reinterpret_cast<const float**>(scratch),
                           reinterpret_cast<float*>(scratch + (static_cast<std::size_t>(task.taps()) * kMost *
                                                                   sizeof(float*) + 63) / 64 * 64)};
  const bool is_linear = task.out_row == task.out_width * task.out_pixel &&
                         (task.batch == 1 || task.out_image == task.out_height * task.out_row);
  const std::int64_t lines = is_linear ? 1 : static_cast<std::int64_t>(task.batch) * task.out_height;
  const std::int64_t line = static_cast<std::int64_t>(task.batch) * task.out_height * task.out_width / lines;
  const std::int64_t per_line = (line + kMost - 1) / kMost;
  const std::int64_t plane = static_cast<std::int64_t>(task.out_height) * task.out_width;
  const auto first_row = [&](std::int64_t t) { return t / per_line * line + t % per_line * kMost; };
  const auto row_count = [&](std::int64_t t) {
    const std::int64_t left = (t / per_line + 1) * line - first_row(t);
    return left < kMost ? static_cast<int>(left) : kMost;
  };
  const std::ptrdiff_t products = static_cast<std::ptrdiff_t>(task.taps()) * task.depth;
  float* const gathered = source.gathered;
  const std::ptrdiff_t gathered_tile = kMost * TileSource<kMost>::gathered_pitch(products);
  const bool is_gathered = task.gathers == Gathers::kOnce;
  for (std::int64_t t = part.tile_begin; is_gathered && t < part.tile_end; ++t) {
    source.gathered = gathered + (t - part.tile_begin) * gathered_tile;
    source.set(input + task.runs[part.run_begin].input, first_row(t), row_count(t));
  }
  // The input rows of consecutive tiles are contiguous in memory.
  const bool is_stream = task.taps() == 1 && task.gathers == Gathers::kNone && task.stride_h == 1 && task.stride_w == 1;
  Tile tile;
  tile.pitch = task.out_pixel;
  tile.limits = task.limits;
  for (int index = part.run_begin; index < part.run_end; ++index) {
    const PanelRun& run = task.runs[index];
    const std::int64_t calls = (part.tile_end - part.tile_begin) * (run.end - run.begin);
    // Each call prefetches a share of the weights of the next run or of the input rows of the next tile, whichever is
    // larger.
    const std::int64_t next_bytes = index + 1 < part.run_end ? run_bytes<kVectors>(task, task.runs[index + 1]) : 0;
    const std::ptrdiff_t weight_share = static_cast<std::ptrdiff_t>(next_bytes / calls);
    const std::ptrdiff_t row_share = is_stream ? kMost * task.in_pixel * 4 / (run.end - run.begin) : 0;
    const bool brings_weights = weight_share >= row_share;
    const std::ptrdiff_t share = brings_weights ? weight_share : row_share;
    const float* next = brings_weights && next_bytes > 0
                            ? task.weights + task.panels[task.runs[index + 1].begin].weights
                            : task.weights;
    tile.ahead = reinterpret_cast<const char*>(next);
    tile.ahead_step = share / products;
    for (std::int64_t t = part.tile_begin; t < part.tile_end; ++t) {
      const std::int64_t m = first_row(t);
      const int count = row_count(t);
      if (is_gathered) {
        source.set_gathered(gathered + (t - part.tile_begin) * gathered_tile, count);
      } else {
        source.set(input + run.input, m, count);
      }
      if (!brings_weights) tile.ahead = reinterpret_cast<const char*>(source.addresses[0] + count * task.in_pixel);
      const std::ptrdiff_t place = m / plane * task.out_image + m % plane / task.out_width * task.out_row +
                                   m % task.out_width * task.out_pixel;
      tile.rows = source.addresses;
      tile.segments = source.segments;
      tile.depth = source.depth;
      for (int p = run.begin; p < run.end; ++p) {
        const MatmulPanel& panel = task.panels[p];
        tile.weights = task.weights + panel.weights;
        tile.bias = task.bias + static_cast<std::ptrdiff_t>(p) * kVectors * Float::kLanes;
        tile.output = output + place + panel.first;
        tile.residual = task.tail_count > 0 || residual == nullptr ? nullptr : residual + place + panel.first;
        tile.columns = panel.columns;
        (panel.vectors == kVectors ? whole : narrow)[count - 1](tile);
        tile.ahead += share;
      }
      if (task.tail_count > 0) apply_tail(task, run, residual, output, place, count);
    }
  }
}

// Copies the columns of a panel of the right matrix so that each row of the panel is `width` adjacent floats. Columns
// after the last one have undefined content, because their results are not stored.
FLOAT_INLINE void pack_right(const MatmulTask& task, const float* right, int columns, int width, float* to) {
  if (task.right_column == 1) {
    for (std::int64_t k = 0; k < task.depth; ++k, to += width, right += task.right_depth)
      for (int column = 0; column < columns; column += Float::kLanes) {
        const int left = columns - column;
        load_lanes(right + column, left < Float::kLanes ? left : Float::kLanes).store(to + column);
      }
    return;
  }
  for (int column = 0; column < columns; ++column)
    for (std::int64_t k = 0; k < task.depth; ++k)
      to[k * width + column] = right[k * task.right_depth + column * task.right_column];
}

// Multiplies the rows of one left matrix by a packed panel, which begins at column `start`. A row of the panel has one
// register of columns if that is enough, else `kVectors`. `gathered` has space for kMost rows; it is used only if the
// elements of a left row are not adjacent.
template <bool kPrecise, int kMost, int kVectors>
void run_panel(const MatmulTask& task, const float* left, const float* packed, std::int64_t start, float* output,
               float* gathered) {
  using Rows = std::make_integer_sequence<int, kMost>;
  constexpr int kWidth = kVectors * Float::kLanes;
  const std::int64_t rest = task.columns - start;
  const float* rows[kMost];
  Tile tile;
  tile.rows = rows;
  tile.segments = 1;
  tile.depth = task.depth;
  tile.weights = packed;
  tile.residual = nullptr;
  tile.pitch = task.out_row;
  tile.ahead = reinterpret_cast<const char*>(packed);
  tile.ahead_step = 0;
  tile.columns = static_cast<int>(rest < kWidth ? rest : kWidth);
  tile.bias = task.bias + start;
  const TileFunction* const functions = tile.columns <= Float::kLanes ? TileTable<kPrecise, 1, Rows>::of_rows
                                                                      : TileTable<kPrecise, kVectors, Rows>::of_rows;
  // Tiles of nearly equal height: a tile of few rows has too few independent sums to use the multipliers fully.
  const std::int64_t tiles = (task.rows + kMost - 1) / kMost;
  for (std::int64_t t = 0; t < tiles; ++t) {
    const std::int64_t m = task.rows * t / tiles;
    const auto count = static_cast<int>(task.rows * (t + 1) / tiles - m);
    for (int r = 0; r < count; ++r) {
      rows[r] = left + (m + r) * task.left_row;
      if (task.left_depth == 1) continue;
      float* to = gathered + r * task.depth;
      for (std::int64_t k = 0; k < task.depth; ++k) to[k] = rows[r][k * task.left_depth];
      rows[r] = to;
    }
    tile.output = output + m * task.out_row + start;
    functions[count - 1](tile);
  }
}

template <bool kPrecise, int kMost, int kVectors>
void run_matmul(const MatmulTask& task, std::int64_t first, std::int64_t last, const float* left, const float* right,
                float* output, std::uint8_t* scratch) {
  constexpr int kWidth = kVectors * Float::kLanes;
  const std::int64_t panels = (task.columns + kWidth - 1) / kWidth;
  auto* packed = reinterpret_cast<float*>(scratch);
  float* gathered = packed + task.depth * kWidth;
  for (std::int64_t unit = first; unit < last; ++unit) {
    const std::int64_t entry = unit / panels, start = unit % panels * kWidth, rest = task.columns - start;
    const int columns = static_cast<int>(rest < kWidth ? rest : kWidth);
    pack_right(task, right + task.right[entry] + start * task.right_column, columns,
               columns <= Float::kLanes ? Float::kLanes : kWidth, packed);
    run_panel<kPrecise, kMost, kVectors>(task, left + task.left[entry], packed, start, output + task.output[entry],
                                         gathered);
  }
}

}  // namespace
}  // namespace tpuconvert
