// Binary32 convolutions and matrix products: what their steps hand to the kernels of an instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/isa.h"

namespace tpuconvert {

// Columns of the result whose weights lie together, one row of weights after the other.
struct ProductPanel {
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

// What a sum is limited to before it is stored, after a tensor of the shape of the result was added: the larger of it and
// `low`, then the smaller of that and `high`; NaN stays NaN, and a zero has the sign that `low` gives it.
struct Limits {
  bool are_set = false;
  float low = 0, high = 0;  // low <= high; high is not 0, low is not -0
};

// A convolution whose images lie channels-last; strides are in floats. A matrix is an image with one row.
struct ProductTask {
  int batch = 1, height = 1, width = 1;
  int out_height = 1, out_width = 1;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int pad_top = 0, pad_left = 0;
  int depth = 1;               // input channels of a group
  std::ptrdiff_t in_pixel = 0, in_row = 0, in_image = 0;
  std::ptrdiff_t out_pixel = 0, out_row = 0, out_image = 0;

  const ProductPanel* panels = nullptr;
  const PanelRun* runs = nullptr;
  int run_count = 0;
  const float* weights = nullptr;
  const float* bias = nullptr;    // one per packed column, in the order of the panels; never null
  const float* zeros = nullptr;   // what padding reads: depth floats
  bool is_dense = false;          // the taps of a kernel row are adjacent in memory
  bool gathers_border = false;    // rows that touch the padding are copied together first
  bool gathers_all = false;       // every tile of rows is
  Limits limits;

  int taps() const { return kernel_h * kernel_w; }
};

// The part of a task that one call computes: runs [run_begin, run_end) of tiles [tile_begin, tile_end).
struct ProductPart {
  int run_begin = 0, run_end = 0;
  std::int64_t tile_begin = 0, tile_end = 0;
};

// The kernels of an instruction set.
struct ProductKernels {
  int lanes;          // columns in one register
  int panel_vectors;  // registers of a whole panel
  int tile_rows;      // rows of the result that are computed together
  int precise_rows;   // the same for sums in binary64
  // `residual` may be null; otherwise it has the strides of the result.
  void (*run)(const ProductTask& task, const ProductPart& part, const float* input, const float* residual, float* output,
              std::uint8_t* scratch);
  // Sums in binary64, rounded once.
  void (*run_precise)(const ProductTask& task, const ProductPart& part, const float* input, const float* residual,
                      float* output, std::uint8_t* scratch);
};

extern const ProductKernels kProductScalar;
extern const ProductKernels kProductAvx2;
extern const ProductKernels kProductAvx512;

const ProductKernels& product_kernels(Isa isa);

// Tiles of rows do not reach over the end of a row of the result unless its rows are adjacent.
std::int64_t product_tiles(const ProductTask& task, int tile_rows);

// Scratch memory of one thread.
std::size_t product_scratch(const ProductTask& task, int tile_rows);

}  // namespace tpuconvert
