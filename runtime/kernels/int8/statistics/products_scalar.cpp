#include "int8/statistics/products.h"

namespace tpuconvert {
namespace {

constexpr int kRows = 4, kColumns = 8;

void add(const std::uint32_t* left, const std::uint32_t* right, std::int64_t words, std::int32_t* to,
         std::int64_t stride) {
  const auto* a = reinterpret_cast<const std::int16_t*>(left);
  const auto* b = reinterpret_cast<const std::int16_t*>(right);
  std::int32_t sum[kRows][kColumns] = {};
  for (std::int64_t word = 0; word < words; ++word, a += 2 * kRows, b += 2 * kColumns)
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kColumns; ++j) sum[i][j] += a[2 * i] * b[2 * j] + a[2 * i + 1] * b[2 * j + 1];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kColumns; ++j) to[i * stride + j] += sum[i][j];
}

}  // namespace

const ProductKernels kProductsScalar{kRows, kColumns, kColumns, false, add, add};

}  // namespace tpuconvert
