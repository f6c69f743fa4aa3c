// Float32 convolution and matmul: arguments that steps pass to the kernels of an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "float32/elementwise/chain.h"
#include "float32/images/window.h"

namespace tpuconvert {

// A panel: columns of the result whose weights are packed together, row by row.
struct MatmulPanel {
  int first = 0;               // first column in the result
  int columns = 0;             // number of stored columns
  int vectors = 1;             // number of registers for the packed columns
  std::size_t weights = 0;     // offset in the packed weights, in floats
};

// Panels [begin, end), all of which are computed for one tile of rows before the next tile, so that their weights stay
// in the cache.
struct PanelRun {
  int begin = 0, end = 0;
  std::ptrdiff_t input = 0;    // offset of the first input channel of the group, in floats
};

// Rows that are copied to contiguous memory before the multiplication. kBorder: rows at the padding, if the taps of a
// row are short. kTile and kOnce: all rows, for each tile or once per part, to avoid the cache conflicts of rows whose
// distance is a multiple of 4096 bytes.
enum class Gathers { kNone, kBorder, kTile, kOnce };

// A convolution. A matrix is an image with one row.
struct MatmulConvTask : Window {
  int depth = 1;                  // input channels of a group
  const MatmulPanel* panels = nullptr;
  const PanelRun* runs = nullptr;
  int run_count = 0;
  const float* weights = nullptr;
  const float* bias = nullptr;    // [packed column], in the order of the panels; never null
  const float* zeros = nullptr;   // [kernel_w * depth], read instead of pixels in the padding
  bool is_dense = false;          // the taps of a kernel row are adjacent in memory
  Gathers gathers = Gathers::kNone;
  Limits limits;
  const ChainOp* tail = nullptr;  // fused operators, used instead of residual add and clamp; operand 1 is the residual
  int tail_count = 0;
  ChainFunction run_tail = nullptr;
};

// The part of a task that one call computes: runs [run_begin, run_end) for tiles [tile_begin, tile_end).
struct MatmulPart {
  int run_begin = 0, run_end = 0;
  std::int64_t tile_begin = 0, tile_end = 0;
};

// Matmul of two matrices that are computed at run time, repeated for each entry of a batch. Strides and offsets are in
// floats.
struct MatmulTask {
  std::int64_t rows = 1, columns = 1, depth = 1;
  std::ptrdiff_t left_row = 0, left_depth = 0, right_depth = 0, right_column = 0, out_row = 0;
  const std::ptrdiff_t* left = nullptr;    // [batch], offset of each matrix
  const std::ptrdiff_t* right = nullptr;
  const std::ptrdiff_t* output = nullptr;
  const float* bias = nullptr;             // [column], with the columns rounded up to whole panels
};

// The kernels of an instruction set.
struct MatmulKernels {
  int lanes;          // columns in one register
  int panel_vectors;  // registers of a full panel
  int tile_rows;      // rows of the result in one tile
  int precise_rows;   // rows of a tile with float64 accumulators
  // `residual` may be null; otherwise it has the strides of the result.
  void (*run)(const MatmulConvTask& task, const MatmulPart& part, const float* input, const float* residual, float* output,
              std::uint8_t* scratch);
  // Like `run`, but accumulates in float64 and rounds once.
  void (*run_precise)(const MatmulConvTask& task, const MatmulPart& part, const float* input, const float* residual,
                      float* output, std::uint8_t* scratch);
  // Computes panels first <= panel < last, counted over all entries of the batch.
  void (*matmul)(const MatmulTask& task, std::int64_t first, std::int64_t last, const float* left, const float* right,
                 float* output, std::uint8_t* scratch);
  void (*matmul_precise)(const MatmulTask& task, std::int64_t first, std::int64_t last, const float* left,
                         const float* right, float* output, std::uint8_t* scratch);
  // Multiplies the rows of one left matrix, whose elements are adjacent, by a packed panel of `panel_vectors` registers
  // that begins at column `start`; one register if that is enough for the columns that remain.
  void (*panel)(const MatmulTask& task, const float* left, const float* packed, std::int64_t start, float* output,
                float* gathered);
  void (*panel_precise)(const MatmulTask& task, const float* left, const float* packed, std::int64_t start,
                        float* output, float* gathered);
};

extern const MatmulKernels kMatmulScalar;
extern const MatmulKernels kMatmulAvx2;
extern const MatmulKernels kMatmulAvx512;
extern const MatmulKernels kMatmulNeon;

const MatmulKernels& matmul_kernels(Isa isa);

// A tile crosses the end of a row of the result only if consecutive rows are adjacent in memory.
std::int64_t matmul_tiles(const MatmulConvTask& task, int tile_rows);

// Scratch memory of one thread, in bytes.
std::size_t matmul_scratch(const MatmulConvTask& task, int tile_rows);

}  // namespace tpuconvert
