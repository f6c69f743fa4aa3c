// Sums over observations of the products of two inputs of a linear operator: the covariance of bytes without its mean.
#pragma once

#include <cstdint>

#include "core/isa.h"
#include "core/thread_pool.h"

namespace tpuconvert {

// A view [groups, observations, inputs] of bytes. Strides are in bytes.
struct Observations {
  const std::uint8_t* x = nullptr;
  std::int64_t groups = 0, count = 0, inputs = 0;
  std::int64_t group_stride = 0, stride = 0, input_stride = 0;
  bool is_signed = false;
};

// The inputs of a group are packed in two formats, one for each factor. A word has the values of one input for
// consecutive observations: four bytes for dot products of bytes, two 16-bit integers for those of 16-bit integers. A
// panel has the words of `rows` or `columns` consecutive inputs, [words, inputs of the panel].
struct ProductKernels {
  int rows, columns;  // inputs of a panel of the first and of the second factor
  int narrow;         // inputs of a panel of the second factor if there are no more; at most `columns`
  bool has_bytes;     // words have bytes: the first factor is signed, the second unsigned
  // Adds the products of two panels to `to`, `stride` elements per row.
  void (*add)(const std::uint32_t* left, const std::uint32_t* right, std::int64_t words, std::int32_t* to,
              std::int64_t stride);
  void (*add_narrow)(const std::uint32_t* left, const std::uint32_t* right, std::int64_t words, std::int32_t* to,
                     std::int64_t stride);
};

extern const ProductKernels kProductsScalar;
extern const ProductKernels kProductsAvx2;
extern const ProductKernels kProductsAvx512Vnni;

// Maximum number of observations: their products have a sum below 2^31.
constexpr std::int64_t kMostObservations = 1 << 15;

// Writes the products [groups, inputs, inputs] and the sums [groups, inputs] over at most kMostObservations.
void multiply_inputs(const Observations& rows, std::int32_t* products, std::int64_t* totals, Isa isa, ThreadPool& pool);

}  // namespace tpuconvert
