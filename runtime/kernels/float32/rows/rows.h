// Softmax, normalization and reduction: what their steps hand to the kernels of an instruction set.
//
// All of them compute in float64 and round once. Sums along a row are kept as sixteen partial sums, element i in sum
// i mod 16, which are added in a fixed tree: the same on every instruction set.
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
  bool is_precise = false;  // exponentials by the mathematical library
  bool is_guarded = false;  // rows of minus infinity become zeros
};

struct NormTask {
  std::int64_t count = 1;  // elements of a row
  bool is_centered = true;  // whether the mean is subtracted
  double epsilon = 0;
  // Element j of row r has factor and bias (r mod groups) * (count / block) + j / block.
  std::int64_t block = 1, groups = 1;
};

enum class ReduceKind { kSum, kMax, kMin, kProduct };

// [outer, count, inner] becomes [outer, inner].
struct ReduceTask {
  ReduceKind kind = ReduceKind::kSum;
  std::int64_t count = 1, inner = 1;
  double divisor = 1;
};

struct RowKernels {
  // Rows first <= row < last; `powers` are count doubles of scratch memory.
  void (*softmax)(const SoftmaxTask& task, std::int64_t first, std::int64_t last, const float* x, float* y, double* powers);
  // `scale` and `bias` may be null.
  void (*normalize)(const NormTask& task, std::int64_t first, std::int64_t last, const float* x, const float* scale,
                    const float* bias, float* y);
  // Outer indices first <= row < last; columns begin <= column < end of the inner ones.
  void (*reduce)(const ReduceTask& task, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
                 const float* x, float* y);
};

extern const RowKernels kRowsScalar;
extern const RowKernels kRowsAvx2;
extern const RowKernels kRowsAvx512;

// Exponentials by the mathematical library.
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

// All throw std::invalid_argument for invalid extents.
std::shared_ptr<Step> make_softmax_float(const SoftmaxFloatSpec& spec, Isa isa);
std::shared_ptr<Step> make_norm_float(const NormFloatSpec& spec, Isa isa);
std::shared_ptr<Step> make_reduce_float(const ReduceFloatSpec& spec, Isa isa);

}  // namespace tpuconvert
