// Integer matmul of two operands that are computed at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/epilogue/epilogue.h"

namespace tpuconvert {

// result[..., m, n] = epilogue of sum over k of (left[..., m, k] - left_zero) * (right[..., k, n] - right_zero) + bias[n].
// Strides are in bytes. Elements of left are adjacent along k, results along n, those of right along one of its axes.
struct MatmulInt8Spec {
  Place left, right, output;
  std::vector<std::int64_t> batch;  // leading extents; none is one product
  std::vector<std::ptrdiff_t> left_batch, right_batch, output_batch;
  std::int64_t rows = 1, depth = 1, columns = 1;
  std::ptrdiff_t left_row = 0, right_row = 0, right_column = 1, output_row = 0;  // right_row: from k to k + 1
  int left_zero = 0, right_zero = 0;  // stored bytes that mean 0
  std::vector<std::int32_t> bias;     // one per column, or empty
  EpilogueSpec epilogue;              // with one channel per column
};

// A matmul for one instruction set. Columns are split into blocks; each block is packed and then used for all rows.
class MatmulInt8Kernel {
 public:
  virtual ~MatmulInt8Kernel() = default;
  virtual int blocks() const = 0;
  virtual std::size_t packed_bytes() const = 0;   // of one block; a multiple of 64
  virtual std::size_t scratch_bytes() const = 0;  // for `multiply`; a multiple of 64
  virtual void pack(const std::uint8_t* right, int block, std::uint8_t* packed) const = 0;
  // The results of `rows` rows and the columns of a block. `left` and `output` are where the first row starts.
  virtual void multiply(const std::uint8_t* left, int block, const std::uint8_t* packed, std::uint8_t* output,
                        std::int64_t rows, std::uint8_t* scratch) const = 0;
};

// Constant part of the accumulators of each column: bias + depth * left_zero * (right_zero - counted_from), modulo 2^32.
// `counted_from` is what the kernel subtracts from the bytes of the right operand: 128 for dot products of signed bytes.
std::vector<std::int32_t> constant_parts(const MatmulInt8Spec& spec, int counted_from, std::int64_t padded_columns);

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_scalar(const MatmulInt8Spec& spec);
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_avx2(const MatmulInt8Spec& spec);
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_avxvnni(const MatmulInt8Spec& spec);
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_avx512vnni(const MatmulInt8Spec& spec);

// Throws as make_matmul_int8.
void check_matmul_int8(const MatmulInt8Spec& spec);
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_kernel(const MatmulInt8Spec& spec, Isa isa);

// Byte ranges of the operands and the result.
struct MatmulSpans {
  Span left, right, output;
};
MatmulSpans spans_of(const MatmulInt8Spec& spec);

// Iteration over the leading (batch) axes.
class LeadingAxes {
 public:
  explicit LeadingAxes(const MatmulInt8Spec& spec);
  int count() const { return count_; }
  // Bytes from the first product of an operand with these strides to that of a number.
  std::ptrdiff_t offset(int product, const std::vector<std::ptrdiff_t>& strides) const;

 private:
  std::vector<std::int64_t> extents_;
  int count_ = 1;
};

// Into how many cuts the rows of each product are best divided. Every cut packs the right operand again, so there is one
// where the products go round evenly.
int row_splits(int products, std::int64_t rows, int threads);

// Checks everything and makes the step. Throws std::invalid_argument for what does not fit together, and
// std::overflow_error when a sum may overflows 32 bits.
std::shared_ptr<Step> make_matmul_int8(const MatmulInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
