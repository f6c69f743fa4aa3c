// The product of two operands without vectors: one row of sums at a time.
#include <cstring>

#include "int8/product_int8.h"

namespace tpuconvert {

namespace {

class ProductScalar : public ProductInt8Kernel {
 public:
  explicit ProductScalar(const ProductInt8Spec& spec)
      : spec_(spec), epilogue_(spec.epilogue, static_cast<int>(spec.columns)) {}

  void run(const std::uint8_t* left, const std::uint8_t* right, std::uint8_t* output, std::int64_t first,
           std::int64_t last, std::uint8_t* scratch) const override {
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    for (std::int64_t row = first; row < last; ++row) {
      if (spec_.bias.empty()) {
        std::memset(sums, 0, scratch_bytes());
      } else {
        std::memcpy(sums, spec_.bias.data(), scratch_bytes());
      }
      add_products(left + row * spec_.left_row, right, sums);
      epilogue_.apply_row(sums, 0, static_cast<int>(spec_.columns), output + row * spec_.output_row);
    }
  }

  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(spec_.columns) * sizeof(std::int32_t); }

 private:
  void add_products(const std::uint8_t* left, const std::uint8_t* right, std::int32_t* sums) const {
    if (spec_.right_column == 1) {
      for (std::int64_t k = 0; k < spec_.depth; ++k, right += spec_.right_row) {
        const std::int32_t factor = left[k] - spec_.left_zero;
        for (std::int64_t column = 0; column < spec_.columns; ++column)
          sums[column] += factor * (right[column] - spec_.right_zero);
      }
      return;
    }
    for (std::int64_t column = 0; column < spec_.columns; ++column, right += spec_.right_column) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < spec_.depth; ++k)
        sum += (left[k] - spec_.left_zero) * (right[k] - spec_.right_zero);
      sums[column] += sum;
    }
  }

  ProductInt8Spec spec_;
  Epilogue epilogue_;
};

}  // namespace

std::unique_ptr<ProductInt8Kernel> make_product_int8_scalar(const ProductInt8Spec& spec) {
  return std::make_unique<ProductScalar>(spec);
}

}  // namespace tpuconvert
