// Matmul of two activations without vector instructions, one row of sums at a time.
#include <cstring>

#include "int8/matmul/matmul.h"

namespace tpuconvert {

namespace {

class MatmulScalar : public MatmulInt8Kernel {
 public:
  explicit MatmulScalar(const MatmulInt8Spec& spec)
      : spec_(spec), epilogue_(spec.epilogue, static_cast<int>(spec.columns)) {}

  int blocks() const override { return 1; }
  // The right operand is not packed; the block contains its address.
  std::size_t packed_bytes() const override { return 64; }
  std::size_t scratch_bytes() const override { return (sum_bytes() + 63) / 64 * 64; }

  void pack(const std::uint8_t* right, int, std::uint8_t* packed) const override {
    std::memcpy(packed, &right, sizeof(right));
  }

  void multiply(const std::uint8_t* left, int, const std::uint8_t* packed, std::uint8_t* output, std::int64_t rows,
                std::uint8_t* scratch) const override {
    const std::uint8_t* right = nullptr;
    std::memcpy(&right, packed, sizeof(right));
    auto* sums = reinterpret_cast<std::int32_t*>(scratch);
    for (std::int64_t row = 0; row < rows; ++row, left += spec_.left_row, output += spec_.output_row) {
      if (spec_.bias.empty()) {
        std::memset(sums, 0, sum_bytes());
      } else {
        std::memcpy(sums, spec_.bias.data(), sum_bytes());
      }
      add_products(left, right, sums);
      epilogue_.apply_row(sums, 0, static_cast<int>(spec_.columns), output);
    }
  }

 private:
  std::size_t sum_bytes() const { return static_cast<std::size_t>(spec_.columns) * sizeof(std::int32_t); }

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

  MatmulInt8Spec spec_;
  Epilogue epilogue_;
};

}  // namespace

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_scalar(const MatmulInt8Spec& spec) {
  return std::make_unique<MatmulScalar>(spec);
}

}  // namespace tpuconvert
