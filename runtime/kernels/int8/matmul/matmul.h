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

// result[..., m, n] = epilogue(sum over k of (left[..., m, k] - left_zero) * (right[..., k, n] - right_zero) +
// bias[n]). Strides are in bytes. Elements of `left` are adjacent along k, results are adjacent along n, and elements
// of `right` are adjacent along k or n.
struct MatmulInt8Spec {
  Place left, right, output;
  std::vector<std::int64_t> batch;  // extents of the batch axes; empty for one matmul
  std::vector<std::ptrdiff_t> left_batch, right_batch, output_batch;
  std::int64_t rows = 1, depth = 1, columns = 1;
  std::ptrdiff_t left_row = 0, right_row = 0, right_column = 1, output_row = 0;  // right_row: stride along k
  int left_zero = 0, right_zero = 0;  // stored zero points
  std::vector<std::int32_t> bias;     // one per column, or empty
  EpilogueSpec epilogue;              // one channel per column
};

// A matmul for one instruction set. Columns are divided into blocks; each block is packed once and used for all rows.
class MatmulInt8Kernel {
 public:
  virtual ~MatmulInt8Kernel() = default;
  virtual int blocks() const = 0;
  virtual std::size_t packed_bytes() const = 0;   // size of one packed block, a multiple of 64
  virtual std::size_t scratch_bytes() const = 0;  // scratch memory of `multiply`, a multiple of 64
  virtual void pack(const std::uint8_t* right, int block, std::uint8_t* packed) const = 0;
  // Computes `rows` rows for the columns of a block. `left` and `output` are the addresses of the first row.
  virtual void multiply(const std::uint8_t* left, int block, const std::uint8_t* packed, std::uint8_t* output,
                        std::int64_t rows, std::uint8_t* scratch) const = 0;
};

// Constant part of the accumulators of each column: bias + depth * left_zero * (right_zero - counted_from), modulo
// 2^32. `counted_from` is the value that the kernel subtracts from the bytes of the right operand: 128 for signed dot
// products.
std::vector<std::int32_t> constant_parts(const MatmulInt8Spec& spec, int counted_from, std::int64_t padded_columns);

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_scalar(const MatmulInt8Spec& spec);
// For an instruction set with panel_kernels.h.
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_panels(const MatmulInt8Spec& spec, Isa isa);
// For AVX512-VNNI and AMX.
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_tiles(const MatmulInt8Spec& spec, Isa isa);

// Throws like make_matmul_int8.
void check_matmul_int8(const MatmulInt8Spec& spec);
std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_kernel(const MatmulInt8Spec& spec, Isa isa);

// Byte ranges of the operands and the result.
struct MatmulSpans {
  Span left, right, output;
};
MatmulSpans spans_of(const MatmulInt8Spec& spec);

// Iteration over the matmuls of a batch.
class LeadingAxes {
 public:
  explicit LeadingAxes(const MatmulInt8Spec& spec);
  int count() const { return count_; }
  // Byte offset of matmul number `product` in a tensor with these batch strides.
  std::ptrdiff_t offset(int product, const std::vector<std::ptrdiff_t>& strides) const;

 private:
  std::vector<std::int64_t> extents_;
  int count_ = 1;
};

// Number of parts into which the rows of each matmul are split. Every part packs the right operand again, so the result
// is 1 if the matmuls can be divided evenly among the threads.
int row_splits(int products, std::int64_t rows, int threads);

// Checks the parameters and makes the step. Throws std::invalid_argument for inconsistent parameters, and
// std::overflow_error if an accumulator may overflow 32 bits.
std::shared_ptr<Step> make_matmul_int8(const MatmulInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
