// Reductions: sum, max, min and product. Included after the vector header of an instruction set.
#pragma once

#include "float32/rows/partial_sums.h"
#include "float32/rows/rows.h"

namespace tpuconvert {
namespace {

// Both propagate NaN.
FLOAT_INLINE Double maximum(Double a, Double b) { return select(is_nan(a), a, larger(a, b)); }
FLOAT_INLINE Double minimum(Double a, Double b) { return select(is_nan(a), a, smaller(a, b)); }

struct SumOf {
  static constexpr float kNeutral = 0;
  FLOAT_INLINE Double operator()(Double a, Double b) const { return a + b; }
  FLOAT_INLINE double operator()(double a, double b) const { return a + b; }
};
struct ProductOf {
  static constexpr float kNeutral = 1;
  FLOAT_INLINE Double operator()(Double a, Double b) const { return a * b; }
  FLOAT_INLINE double operator()(double a, double b) const { return a * b; }
};
struct LargestOf {
  static constexpr float kNeutral = -__builtin_inff();
  FLOAT_INLINE Double operator()(Double a, Double b) const { return maximum(a, b); }
  FLOAT_INLINE double operator()(double a, double b) const { return a > b || a != a ? a : b; }
};
struct SmallestOf {
  static constexpr float kNeutral = __builtin_inff();
  FLOAT_INLINE Double operator()(Double a, Double b) const { return minimum(a, b); }
  FLOAT_INLINE double operator()(double a, double b) const { return a < b || a != a ? a : b; }
};

template <typename Fold>
FLOAT_INLINE void reduce_with(const ReduceTask& task, std::int64_t first, std::int64_t last, std::int64_t begin,
                              std::int64_t end, const float* x, float* y, Fold fold) {
  for (std::int64_t row = first; row < last; ++row) {
    const float* from = x + row * task.count * task.inner;
    float* to = y + row * task.inner;
    if (task.inner == 1) {
      Sixteen partial = Sixteen::broadcast(static_cast<double>(Fold::kNeutral));
      for (std::int64_t i = 0; i < task.count; i += kPartial)
        partial = each(partial, Sixteen::load(from + i, task.count - i, Fold::kNeutral), fold);
      *to = static_cast<float>(folded(partial, fold) / task.divisor);
      continue;
    }
    const Sixteen divisor = Sixteen::broadcast(task.divisor);
    for (std::int64_t column = begin; column < end; column += kPartial) {
      const std::int64_t n = end - column;
      Sixteen result = Sixteen::broadcast(static_cast<double>(Fold::kNeutral));
      for (std::int64_t i = 0; i < task.count; ++i)
        result = each(result, Sixteen::load(from + i * task.inner + column, n), fold);
      result = each(result, divisor, [](Double a, Double b) __attribute__((always_inline)) { return a / b; });
      result.store(to + column, n);
    }
  }
}

void run_reduce(const ReduceTask& task, std::int64_t first, std::int64_t last, std::int64_t begin, std::int64_t end,
                const float* x, float* y) {
  switch (task.kind) {
    case ReduceKind::kSum:
      return reduce_with(task, first, last, begin, end, x, y, SumOf());
    case ReduceKind::kMax:
      return reduce_with(task, first, last, begin, end, x, y, LargestOf());
    case ReduceKind::kMin:
      return reduce_with(task, first, last, begin, end, x, y, SmallestOf());
    case ReduceKind::kProduct:
      return reduce_with(task, first, last, begin, end, x, y, ProductOf());
  }
}

}  // namespace
}  // namespace tpuconvert
