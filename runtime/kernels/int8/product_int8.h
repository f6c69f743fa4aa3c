// Exact integer matrix product of two operands that are both made during the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/isa.h"
#include "core/step.h"
#include "int8/epilogue.h"

namespace tpuconvert {

// result[..., m, n] = epilogue of sum over k of (left[..., m, k] - left_zero) * (right[..., k, n] - right_zero) + bias[n].
// Strides are in bytes. Elements of left are adjacent along k, results along n, those of right along one of its axes.
struct ProductInt8Spec {
  Place left, right, output;
  std::vector<std::int64_t> batch;  // leading extents; none is one product
  std::vector<std::ptrdiff_t> left_batch, right_batch, output_batch;
  std::int64_t rows = 1, depth = 1, columns = 1;
  std::ptrdiff_t left_row = 0, right_row = 0, right_column = 1, output_row = 0;  // right_row: from k to k + 1
  int left_zero = 0, right_zero = 0;  // stored bytes that mean 0
  std::vector<std::int32_t> bias;     // one per column, or empty
  EpilogueSpec epilogue;              // with one channel per column
};

// One product for one instruction set.
class ProductInt8Kernel {
 public:
  virtual ~ProductInt8Kernel() = default;
  // Result rows first..last-1.
  virtual void run(const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* output, std::int64_t first,
                   std::int64_t last, std::uint8_t* scratch) const = 0;
  virtual std::size_t scratch_bytes() const = 0;
};

// What all kernels add to the sums of stored bytes of a column, where the right operand counts from `right_zero` bytes
// on: bias + depth * left_zero * (right_zero - counted_from), modulo 2^32; and `counted_from` itself is 128 where signed
// bytes are multiplied.
std::vector<std::int32_t> constant_parts(const ProductInt8Spec& spec, int counted_from, std::int64_t padded_columns);

std::unique_ptr<ProductInt8Kernel> make_product_int8_scalar(const ProductInt8Spec& spec);
std::unique_ptr<ProductInt8Kernel> make_product_int8_avx2(const ProductInt8Spec& spec);
std::unique_ptr<ProductInt8Kernel> make_product_int8_avxvnni(const ProductInt8Spec& spec);
std::unique_ptr<ProductInt8Kernel> make_product_int8_avx512vnni(const ProductInt8Spec& spec);

// Checks everything and makes the step. Throws std::invalid_argument for what does not fit together, and
// std::overflow_error when a sum may leave 32 bits.
std::shared_ptr<Step> make_product_int8(const ProductInt8Spec& spec, Isa isa);

}  // namespace tpuconvert
