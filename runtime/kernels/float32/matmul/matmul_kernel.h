// Binary32 convolutions and matmuls: what their steps hand to the kernels of an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "float32/elementwise/chain.h"
#include "float32/images/window.h"

namespace tpuconvert {

// Columns of the result whose weights are packed together, row by row.
struct MatmulPanel {
  int first = 0;               // column of the result
  int columns = 0;             // that are stored
  int vectors = 1;             // registers that hold the packed columns
  std::size_t weights = 0;     // floats from the start of the packed weights
};

// Panels that are run for one tile of rows after the other, so that their weights stay in the cache.
struct PanelRun {
  int begin = 0, end = 0;
  std::ptrdiff_t input = 0;    // floats to the first input channel of their group
};

// Rows that are copied to contiguous memory before the multiplication: none; those that touch the padding, where the taps
// of a row are short; or all of them, which avoids cache conflicts between rows with unlucky strides: per tile, or once.
enum class Gathers { kNone, kBorder, kTile, kOnce };

// A convolution; a matrix is an image with one row.
struct MatmulConvTask : Window {
  int depth = 1;                  // input channels of a group
  const MatmulPanel* panels = nullptr;
  const PanelRun* runs = nullptr;
  int run_count = 0;
  const float* weights = nullptr;
  const float* bias = nullptr;    // one per packed column, in the order of the panels; never null
  const float* zeros = nullptr;   // what padding reads: as many floats as a kernel row has
  bool is_dense = false;          // the taps of a kernel row are adjacent in memory
  Gathers gathers = Gathers::kNone;
  Limits limits;
  const ChainOp* tail = nullptr;  // what follows, instead of an addition and limits; operand 1 is the residual
  int tail_count = 0;
  ChainFunction run_tail = nullptr;
};

// The part of a task that one call computes: runs [run_begin, run_end) of tiles [tile_begin, tile_end).
struct MatmulPart {
  int run_begin = 0, run_end = 0;
  std::int64_t tile_begin = 0, tile_end = 0;
};

// Products of two matrices that are both made at run time, one per entry of a batch. Strides and offsets are in floats.
struct MatmulTask {
  std::int64_t rows = 1, columns = 1, depth = 1;
  std::ptrdiff_t left_row = 0, left_depth = 0, right_depth = 0, right_column = 0, out_row = 0;
  const std::ptrdiff_t* left = nullptr;    // where the matrices of each entry start
  const std::ptrdiff_t* right = nullptr;
  const std::ptrdiff_t* output = nullptr;
  const float* bias = nullptr;             // one per column, rounded up to whole panels
};

// The kernels of an instruction set.
struct MatmulKernels {
  int lanes;          // columns in one register
  int panel_vectors;  // registers of a whole panel
  int tile_rows;      // rows of the result that are computed together
  int precise_rows;   // the same for sums in float64
  // `residual` may be null; otherwise it has the strides of the result.
  void (*run)(const MatmulConvTask& task, const MatmulPart& part, const float* input, const float* residual, float* output,
              std::uint8_t* scratch);
  // Sums in float64, rounded once.
  void (*run_precise)(const MatmulConvTask& task, const MatmulPart& part, const float* input, const float* residual,
                      float* output, std::uint8_t* scratch);
  // Panels of columns, counted over all entries of the batch: first <= panel < last.
  void (*matmul)(const MatmulTask& task, std::int64_t first, std::int64_t last, const float* left, const float* right,
                 float* output, std::uint8_t* scratch);
  void (*matmul_precise)(const MatmulTask& task, std::int64_t first, std::int64_t last, const float* left,
                         const float* right, float* output, std::uint8_t* scratch);
};

extern const MatmulKernels kMatmulScalar;
extern const MatmulKernels kMatmulAvx2;
extern const MatmulKernels kMatmulAvx512;

const MatmulKernels& matmul_kernels(Isa isa);

// Tiles of rows do not reach over the end of a row of the result unless its rows are adjacent.
std::int64_t matmul_tiles(const MatmulConvTask& task, int tile_rows);

// Scratch memory of one thread.
std::size_t matmul_scratch(const MatmulConvTask& task, int tile_rows);

}  // namespace tpuconvert
