// Softmax, normalization and reduction: arguments that steps pass to the kernels of an instruction set.
//
// All of them compute in float64 and round once. A sum along a row consists of sixteen partial sums, element i in sum i
// mod 16, which are added in a fixed tree, so that results are equal on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/isa.h"
#include "core/step.h"

namespace tpuconvert {

struct SoftmaxTask {
  std::int64_t count = 1;   // elements of a row
  bool is_precise = false;  // computes exponentials by the C++ standard library
  bool is_guarded = false;  // the softmax of a row of -infinity is 0 instead of NaN
};

struct NormTask {
  std::int64_t count = 1;  // elements of a row
  bool is_centered = true;  // true if the mean is subtracted
  double epsilon = 0;
  // Index of the scale and bias of element j of row r: (r mod groups) * (count / block) + j / block.
  std::int64_t block = 1, groups = 1;
};

enum class ReduceKind { kSum, kMax, kMin, kProduct };

// Reduces [outer, count, inner] to [outer, inner].
struct ReduceTask {
  ReduceKind kind = ReduceKind::kSum;
  std::int64_t count = 1, inner = 1;
  double divisor = 1;
};

struct RowKernels {
  // Computes rows first <= row < last. `powers` is scratch memory for `count` doubles.
  void (*softmax)(const SoftmaxTask& task, std::int64_t first, std::int64_t last, const float* x, float* y, double* powers);
  // `scale` and `bias` may be null.
  void (*normalize)(const NormTask& task, std::int64_t first, std::int64_t last, const float* x, const float* scale,
                    const float* bias, float* y);
  // Computes outer indices first <= row < last for inner indices begin <= column < end.
  void (*reduce)(const ReduceTask& task, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
                 const float* x, float* y);
};

extern const RowKernels kRowsScalar;
extern const RowKernels kRowsAvx2;
extern const RowKernels kRowsAvx512;
extern const RowKernels kRowsNeon;

// Like `softmax`, with exponentials by the C++ standard library.
void precise_powers(const float* x, float largest, std::int64_t count, double* powers);

// x and y are contiguous.
struct SoftmaxFloatSpec : SoftmaxTask {
  Place x, y;
  std::int64_t rows = 1;
};

struct NormFloatSpec : NormTask {
  Place x, y;
  std::optional<Place> scale, bias;
  std::int64_t rows = 1;
};

struct ReduceFloatSpec : ReduceTask {
  Place x, y;
  std::int64_t outer = 1;
};

// All functions throw std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_softmax_float(const SoftmaxFloatSpec& spec, Isa isa);
std::shared_ptr<Step> make_norm_float(const NormFloatSpec& spec, Isa isa);
std::shared_ptr<Step> make_reduce_float(const ReduceFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
