#include "float32/rounding/rounding.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/variants.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFactored = 128;  // columns of the factor that are computed before they are subtracted
constexpr std::int64_t kRounded = 32;    // inputs that are rounded before their errors are distributed
constexpr int kMostRows = 8, kMostColumns = 48;
constexpr float kInteger = 12582912.0f;  // 1.5 * 2^23: adding it rounds a small number to an integer, ties to even

const RoundingKernels& kernels_for(Isa isa) {
  return TPU_SELECT(isa, kRoundingScalar, kRoundingAvx2, kRoundingAvx512, kRoundingNeon);
}

std::int64_t up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// Calls work(0..count-1), in any order.
using Each = std::function<void(std::int64_t count, const std::function<void(std::int64_t)>& work)>;

// Subtracts the product of two panels from a tile of a matrix, of which `height` rows and `width` columns exist.
void subtract_tile(const RoundingKernels& kernels, const float* left, const float* right, std::int64_t depth, float* to,
                   std::int64_t stride, std::int64_t height, std::int64_t width) {
  if (height >= kernels.rows && width >= kernels.columns) {
    kernels.subtract(left, right, depth, to, stride);
    return;
  }
  float tile[kMostRows * kMostColumns] = {};
  height = std::min<std::int64_t>(height, kernels.rows);
  width = std::min<std::int64_t>(width, kernels.columns);
  for (std::int64_t i = 0; i < height; ++i) std::copy(to + i * stride, to + i * stride + width, tile + i * kernels.columns);
  kernels.subtract(left, right, depth, tile, kernels.columns);
  for (std::int64_t i = 0; i < height; ++i)
    std::copy(tile + i * kernels.columns, tile + i * kernels.columns + width, to + i * stride);
}

// Cholesky factorization of a matrix by blocks of columns.
class Cholesky {
 public:
  Cholesky(float* matrix, std::int64_t size, const RoundingKernels& kernels)
      : a_(matrix),
        size_(size),
        kernels_(kernels),
        depth_(up(std::min(size, kFactored), kernels.rows)),
        triangle_(depth_ * depth_),
        inverse_(kFactored),
        left_(up(size, kernels.rows) * depth_),
        right_(up(size, kernels.columns) * depth_) {}

  // Returns false if the matrix is not positive definite.
  bool run(const Each& each) {
    for (std::int64_t first = 0; first < size_; first += kFactored) {
      const std::int64_t width = std::min(kFactored, size_ - first), below = first + width;
      if (!factor_diagonal(first, width)) return false;
      const std::int64_t rest = size_ - below;
      pack_triangle(first, width);
      each((rest + kernels_.columns - 1) / kernels_.columns,
           [&](std::int64_t panel) { solve(first, width, below + panel * kernels_.columns, right_of(panel)); });
      each((rest + kernels_.rows - 1) / kernels_.rows, [&](std::int64_t panel) {
        pack_rows(first, width, below + panel * kernels_.rows, left_of(panel, width));
      });
      each((rest + kernels_.columns - 1) / kernels_.columns,
           [&](std::int64_t panel) { subtract(width, below, panel * kernels_.columns, right_of(panel)); });
    }
    return true;
  }

 private:
  float* right_of(std::int64_t panel) { return &right_[panel * kernels_.columns * depth_]; }
  float* left_of(std::int64_t panel, std::int64_t width) { return &left_[panel * kernels_.rows * width]; }

  bool factor_diagonal(std::int64_t first, std::int64_t width) {
    float* a = a_ + first * size_ + first;
    float column[kFactored];
    for (std::int64_t k = 0; k < width; ++k) {
      const float pivot = a[k * size_ + k];
      if (!(pivot > 0 && std::isfinite(pivot))) return false;
      const float root = std::sqrt(pivot);
      a[k * size_ + k] = root;
      inverse_[k] = 1 / root;
      for (std::int64_t i = k + 1; i < width; ++i) column[i] = a[i * size_ + k] *= inverse_[k];
      for (std::int64_t i = k + 1; i < width; ++i)
        kernels_.subtract_row(column[i], column + k + 1, i - k, a + i * size_ + k + 1);
    }
    return true;
  }

  // Packs the rows of the diagonal block as panels [columns before it, rows]; missing rows are 0.
  void pack_triangle(std::int64_t first, std::int64_t width) {
    const float* a = a_ + first * size_ + first;
    for (std::int64_t row = 0; row < up(width, kernels_.rows); ++row) {
      float* to = &triangle_[row / kernels_.rows * kernels_.rows * depth_ + row % kernels_.rows];
      for (std::int64_t k = 0; k < width; ++k) to[k * kernels_.rows] = row < width ? a[row * size_ + k] : 0;
    }
  }

  // Computes the factor in up to `columns` rows below the diagonal block, and keeps them as a panel [width, columns].
  void solve(std::int64_t first, std::int64_t width, std::int64_t row, float* panel) {
    const std::int64_t lanes = kernels_.columns, count = std::min<std::int64_t>(lanes, size_ - row);
    float* a = a_ + row * size_ + first;
    for (std::int64_t lane = 0; lane < lanes; ++lane)
      for (std::int64_t k = 0; k < width; ++k) panel[k * lanes + lane] = lane < count ? a[lane * size_ + k] : 0;
    for (std::int64_t start = 0; start < width; start += kernels_.rows) {
      const std::int64_t end = std::min(start + kernels_.rows, width);
      const float* triangle = &triangle_[start * depth_];
      if (start > 0) kernels_.subtract(triangle, panel, start, panel + start * lanes, lanes);
      for (std::int64_t k = start; k < end; ++k) {
        float* x = panel + k * lanes;
        for (std::int64_t t = start; t < k; ++t)
          kernels_.subtract_row(triangle[t * kernels_.rows + k - start], panel + t * lanes, lanes, x);
        for (std::int64_t lane = 0; lane < lanes; ++lane) x[lane] *= inverse_[k];
      }
    }
    for (std::int64_t lane = 0; lane < count; ++lane)
      for (std::int64_t k = 0; k < width; ++k) a[lane * size_ + k] = panel[k * lanes + lane];
  }

  // Packs rows below the diagonal block as a panel [width, rows].
  void pack_rows(std::int64_t first, std::int64_t width, std::int64_t row, float* to) {
    for (std::int64_t lane = 0; lane < kernels_.rows; ++lane) {
      const float* a = a_ + (row + lane) * size_ + first;
      for (std::int64_t k = 0; k < width; ++k) to[k * kernels_.rows + lane] = row + lane < size_ ? a[k] : 0;
    }
  }

  // Subtracts the products of new columns of the factor from the columns `column` to `column + columns - 1` of the rest.
  void subtract(std::int64_t width, std::int64_t below, std::int64_t column, const float* right) {
    const std::int64_t rest = size_ - below;
    for (std::int64_t row = column; row < rest; row += kernels_.rows)
      subtract_tile(kernels_, left_of(row / kernels_.rows, width), right, width,
                    a_ + (below + row) * size_ + below + column, size_, rest - row, rest - column);
  }

  float* a_;
  std::int64_t size_;
  const RoundingKernels& kernels_;
  std::int64_t depth_;
  std::vector<float> triangle_, inverse_, left_, right_;
};

// Rounds the weights of one group with the factor of its covariance.
class Rounding {
 public:
  Rounding(float* factor, float* wanted, float* result, std::int64_t inputs, std::int64_t outputs, float limit,
           const RoundingKernels& kernels)
      : factor_(factor),
        errors_(wanted),
        result_(result),
        inputs_(inputs),
        outputs_(outputs),
        limit_(limit),
        kernels_(kernels),
        left_(up(inputs, kernels.rows) * kRounded) {}

  void run(const Each& each) {
    std::copy(errors_, errors_ + inputs_ * outputs_, result_);
    scale_columns();
    for (std::int64_t start = up(inputs_, kRounded) - kRounded; start >= 0; start -= kRounded) {
      const std::int64_t end = std::min(start + kRounded, inputs_);
      pack(start, end);
      each((outputs_ + kernels_.columns - 1) / kernels_.columns, [&](std::int64_t panel) {
        const std::int64_t first = panel * kernels_.columns;
        round(start, end, first, std::min(first + kernels_.columns, outputs_));
      });
    }
  }

 private:
  // Divides the columns of the factor by their diagonal elements.
  void scale_columns() {
    std::vector<float> inverse(static_cast<std::size_t>(inputs_));
    for (std::int64_t i = 0; i < inputs_; ++i) {
      for (std::int64_t j = 0; j < i; ++j) factor_[i * inputs_ + j] *= inverse[j];
      inverse[i] = 1 / factor_[i * inputs_ + i];
    }
  }

  // Packs the factor in the rows `start` to `end - 1` as panels [rows, inputs of a tile] for the inputs before them.
  void pack(std::int64_t start, std::int64_t end) {
    for (std::int64_t input = 0; input < start; input += kernels_.rows)
      for (std::int64_t k = start; k < end; ++k) {
        const float* from = factor_ + k * inputs_ + input;
        std::copy(from, from + kernels_.rows, &left_[input * kRounded + (k - start) * kernels_.rows]);
      }
  }

  // Rounds the inputs `start` to `end - 1` of the outputs `first` to `last - 1`, and distributes their errors.
  void round(std::int64_t start, std::int64_t end, std::int64_t first, std::int64_t last) {
    const std::int64_t width = last - first;
    float right[kRounded * kMostColumns] = {};
    for (std::int64_t input = end - 1; input >= start; --input) {
      float* rounded = result_ + input * outputs_ + first;
      float* errors = errors_ + input * outputs_ + first;
      float* packed = right + (input - start) * kernels_.columns;
      for (std::int64_t i = 0; i < width; ++i) {
        const float value = std::max(-limit_, std::min(limit_, rounded[i]));
        rounded[i] = (value + kInteger) - kInteger;
        packed[i] = errors[i] = rounded[i] - errors[i];
      }
      for (std::int64_t other = start; other < input; ++other)
        kernels_.subtract_row(factor_[input * inputs_ + other], errors, width, result_ + other * outputs_ + first);
    }
    for (std::int64_t input = 0; input < start; input += kernels_.rows)
      subtract_tile(kernels_, &left_[input * kRounded], right, end - start, result_ + input * outputs_ + first, outputs_,
                    start - input, width);
  }

  float* factor_;
  float* errors_;
  float* result_;
  std::int64_t inputs_, outputs_;
  float limit_;
  const RoundingKernels& kernels_;
  std::vector<float> left_;
};

}  // namespace

bool round_weights(float* covariance, float* wanted, float* result, std::int64_t groups, std::int64_t inputs,
                   std::int64_t outputs, float limit, Isa isa, ThreadPool& pool) {
  const RoundingKernels& kernels = kernels_for(isa);
  const auto round_group = [&](std::int64_t group, const Each& each) {
    float* factor = covariance + group * inputs * inputs;
    if (!Cholesky(factor, inputs, kernels).run(each)) return false;
    const std::int64_t weights = group * inputs * outputs;
    Rounding(factor, wanted + weights, result + weights, inputs, outputs, limit, kernels).run(each);
    return true;
  };
  if (groups == 1)
    return round_group(0, [&](std::int64_t count, const std::function<void(std::int64_t)>& work) {
      pool.run(static_cast<int>(count), [&](int part, int) { work(part); });
    });
  std::vector<char> done(static_cast<std::size_t>(groups), 1);
  const std::int64_t step = (groups + 255) / 256, parts = (groups + step - 1) / step;
  pool.run(static_cast<int>(parts), [&](int part, int) {
    for (std::int64_t group = part * step; group < std::min(groups, (part + 1) * step); ++group)
      done[group] = round_group(group, [](std::int64_t count, const std::function<void(std::int64_t)>& work) {
        for (std::int64_t i = 0; i < count; ++i) work(i);
      });
  });
  return std::all_of(done.begin(), done.end(), [](char ok) { return ok != 0; });
}

}  // namespace tpuconvert
