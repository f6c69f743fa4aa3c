// Checks of a product of two operands, and the step that runs its kernel over the leading axes.
#include "int8/product_int8.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace tpuconvert {

namespace {

constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kRowsWorthDividing = 32;

void require(bool is_true, const char* message) {
  if (!is_true) throw std::invalid_argument(std::string("product_int8: ") + message);
}

std::int64_t multiplied(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), "more elements than an index can count");
  return product;
}

// Bytes from the first to behind the last element; axes as pairs of extent and stride.
std::int64_t extent(const ProductInt8Spec& spec, const std::vector<std::ptrdiff_t>& batch,
                    std::initializer_list<std::pair<std::int64_t, std::ptrdiff_t>> axes, std::int64_t element) {
  std::int64_t total = element;
  const auto add = [&](std::int64_t count, std::ptrdiff_t stride) {
    require(stride >= 0, "strides must not be negative");
    require(!__builtin_add_overflow(total, multiplied(count - 1, stride), &total), "extents exceed 64 bits");
  };
  for (std::size_t axis = 0; axis < spec.batch.size(); ++axis) add(spec.batch[axis], batch[axis]);
  for (const auto& [count, stride] : axes) add(count, stride);
  return total;
}

void check(const ProductInt8Spec& spec) {
  const std::size_t axes = spec.batch.size();
  require(spec.left_batch.size() == axes && spec.right_batch.size() == axes && spec.output_batch.size() == axes,
          "every leading axis needs a stride per operand");
  for (const std::int64_t count : spec.batch) require(count >= 1 && count <= kLargest, "extents must be positive");
  for (const std::int64_t count : {spec.rows, spec.depth, spec.columns})
    require(count >= 1 && count <= kLargest / 8, "extents must be positive and fit 28 bits");
  require(spec.right_row == 1 || spec.right_column == 1, "the right operand needs an axis of adjacent elements");
  for (const int zero : {spec.left_zero, spec.right_zero})
    require(zero >= 0 && zero <= 255, "a zero point is not a stored byte");
  require(spec.bias.empty() || spec.bias.size() == static_cast<std::size_t>(spec.columns),
          "biases must be one per column");
  std::int64_t largest_bias = 0;
  for (const std::int32_t value : spec.bias) largest_bias = std::max(largest_bias, std::abs(std::int64_t{value}));
  const std::int64_t largest_product =
      std::int64_t{std::max(spec.left_zero, 255 - spec.left_zero)} * std::max(spec.right_zero, 255 - spec.right_zero);
  // At most 2^28 * 2^16 + 2^31.
  if (spec.depth * largest_product + largest_bias > kLargest)
    throw std::overflow_error("product_int8: a sum may leave 32 bits");
}

class ProductInt8Step : public Step {
 public:
  ProductInt8Step(const ProductInt8Spec& spec, std::unique_ptr<ProductInt8Kernel> kernel)
      : left_{spec.left, bytes(extent(spec, spec.left_batch, {{spec.rows, spec.left_row}, {spec.depth, 1}}, 1))},
        right_{spec.right, bytes(extent(spec, spec.right_batch,
                                        {{spec.depth, spec.right_row}, {spec.columns, spec.right_column}}, 1))},
        output_{spec.output,
                bytes(extent(spec, spec.output_batch,
                             {{spec.rows, spec.output_row}, {spec.columns, spec.epilogue.bytes}}, spec.epilogue.bytes))},
        batch_(spec.batch),
        left_batch_(spec.left_batch),
        right_batch_(spec.right_batch),
        output_batch_(spec.output_batch),
        rows_(spec.rows),
        kernel_(std::move(kernel)) {
    std::int64_t products = 1;
    for (const std::int64_t count : batch_) products = multiplied(products, count);
    require(products <= kLargest / 1024, "more products than an index can count");
    products_ = static_cast<int>(products);
  }

  void run(const Run& run) const override {
    const int cuts = cuts_of(run.threads());
    run.parallel(products_ * cuts, [&](int part, int worker) {
      std::int64_t rest = part / cuts;
      std::ptrdiff_t left = 0, right = 0, output = 0;
      for (std::size_t axis = batch_.size(); axis-- > 0;) {
        const std::ptrdiff_t index = rest % batch_[axis];
        rest /= batch_[axis];
        left += index * left_batch_[axis];
        right += index * right_batch_[axis];
        output += index * output_batch_[axis];
      }
      const int cut = part % cuts;
      kernel_->run(run.at<const std::uint8_t>(left_.place) + left, run.at<const std::uint8_t>(right_.place) + right,
                   run.at<std::uint8_t>(output_.place) + output, rows_ * cut / cuts, rows_ * (cut + 1) / cuts,
                   run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override { return {left_, right_, output_}; }
  std::size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  const char* kind() const override { return "batch_matmul_int8"; }

 private:
  static std::size_t bytes(std::int64_t count) { return static_cast<std::size_t>(count); }

  // Every cut of the rows packs the right operand again, so products are divided only if they do not go round evenly.
  int cuts_of(int threads) const {
    if (threads == 1 || products_ % threads == 0 || products_ >= 8 * threads || rows_ < kRowsWorthDividing) return 1;
    return threads;
  }

  Span left_, right_, output_;
  std::vector<std::int64_t> batch_;
  std::vector<std::ptrdiff_t> left_batch_, right_batch_, output_batch_;
  std::int64_t rows_;
  int products_ = 1;
  std::unique_ptr<ProductInt8Kernel> kernel_;
};

std::unique_ptr<ProductInt8Kernel> make_kernel(const ProductInt8Spec& spec, Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512Vnni) return make_product_int8_avx512vnni(spec);
  if (isa >= Isa::kAvxVnni) return make_product_int8_avxvnni(spec);
  if (isa >= Isa::kAvx2) return make_product_int8_avx2(spec);
#else
  static_cast<void>(isa);
#endif
  return make_product_int8_scalar(spec);
}

}  // namespace

std::vector<std::int32_t> constant_parts(const ProductInt8Spec& spec, int counted_from, std::int64_t padded_columns) {
  const std::int64_t common = spec.depth * spec.left_zero * (spec.right_zero - counted_from);
  std::vector<std::int32_t> parts(static_cast<std::size_t>(padded_columns));
  for (std::size_t column = 0; column < static_cast<std::size_t>(spec.columns); ++column)
    parts[column] = static_cast<std::int32_t>(common + (spec.bias.empty() ? 0 : spec.bias[column]));
  return parts;
}

std::shared_ptr<Step> make_product_int8(const ProductInt8Spec& spec, Isa isa) {
  check(spec);
  return std::make_shared<ProductInt8Step>(spec, make_kernel(spec, isa));
}

}  // namespace tpuconvert
