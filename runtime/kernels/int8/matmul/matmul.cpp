// Parameter checks of a matmul of two activations, and the step that runs its kernel over the batch axes.
#include "int8/matmul/matmul.h"

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
  if (!is_true) throw std::invalid_argument(std::string("batch_matmul_int8: ") + message);
}

std::int64_t multiplied(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  require(!__builtin_mul_overflow(a, b, &product), "more elements than an index can count");
  return product;
}

// Bytes from the start of the first element to the end of the last one. `axes` are pairs of extent and stride.
std::int64_t extent(const MatmulInt8Spec& spec, const std::vector<std::ptrdiff_t>& batch,
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

class MatmulInt8Step : public Step {
 public:
  MatmulInt8Step(const MatmulInt8Spec& spec, std::unique_ptr<MatmulInt8Kernel> kernel)
      : spec_(spec), spans_(spans_of(spec)), products_(spec), kernel_(std::move(kernel)) {}

  void run(const Run& run) const override {
    const int cuts = row_splits(products_.count(), spec_.rows, run.threads());
    run.parallel(products_.count() * cuts, [&](int part, int worker) {
      const int product = part / cuts, cut = part % cuts;
      const std::int64_t first = spec_.rows * cut / cuts, last = spec_.rows * (cut + 1) / cuts;
      const std::uint8_t* left = run.at<const std::uint8_t>(spec_.left) + products_.offset(product, spec_.left_batch);
      const std::uint8_t* right = run.at<const std::uint8_t>(spec_.right) + products_.offset(product, spec_.right_batch);
      std::uint8_t* output = run.at<std::uint8_t>(spec_.output) + products_.offset(product, spec_.output_batch);
      std::uint8_t* const packed = run.scratch(worker) + kernel_->scratch_bytes();
      for (int block = 0; block < kernel_->blocks(); ++block) {
        kernel_->pack(right, block, packed);
        kernel_->multiply(left + first * spec_.left_row, block, packed, output + first * spec_.output_row, last - first,
                          run.scratch(worker));
      }
    });
  }

  std::vector<Span> spans() const override { return {spans_.left, spans_.right, spans_.output}; }
  std::size_t scratch_bytes() const override { return kernel_->scratch_bytes() + kernel_->packed_bytes(); }
  const char* kind() const override { return "batch_matmul_int8"; }

 private:
  MatmulInt8Spec spec_;
  MatmulSpans spans_;
  LeadingAxes products_;
  std::unique_ptr<MatmulInt8Kernel> kernel_;
};

}  // namespace

void check_matmul_int8(const MatmulInt8Spec& spec) {
  const std::size_t axes = spec.batch.size();
  require(spec.left_batch.size() == axes && spec.right_batch.size() == axes && spec.output_batch.size() == axes,
          "every leading axis needs a stride per operand");
  for (const std::int64_t count : spec.batch) require(count >= 1 && count <= kLargest, "extents must be positive");
  for (const std::int64_t count : {spec.rows, spec.depth, spec.columns})
    require(count >= 1 && count <= kLargest / 8, "extents must be positive and fit 28 bits");
  require(spec.right_row == 1 || spec.right_column == 1, "the right operand needs an axis of adjacent elements");
  require(spec.output_row % spec.epilogue.bytes == 0, "a stride of the result is not a multiple of its elements");
  for (const std::ptrdiff_t stride : spec.output_batch)
    require(stride % spec.epilogue.bytes == 0, "a stride of the result is not a multiple of its elements");
  for (const int zero : {spec.left_zero, spec.right_zero})
    require(zero >= 0 && zero <= 255, "a zero point is not a stored byte");
  require(spec.bias.empty() || spec.bias.size() == static_cast<std::size_t>(spec.columns),
          "biases must be one per column");
  std::int64_t largest_bias = 0;
  for (const std::int32_t value : spec.bias) largest_bias = std::max(largest_bias, std::abs(std::int64_t{value}));
  const std::int64_t largest_product =
      std::int64_t{std::max(spec.left_zero, 255 - spec.left_zero)} * std::max(spec.right_zero, 255 - spec.right_zero);
  // The sum is at most 2^28 * 2^16 + 2^31, which fits 64 bits.
  if (spec.depth * largest_product + largest_bias > kLargest)
    throw std::overflow_error("batch_matmul_int8: a sum may leave 32 bits");
}

std::unique_ptr<MatmulInt8Kernel> make_matmul_int8_kernel(const MatmulInt8Spec& spec, Isa isa) {
#if defined(__x86_64__)
  if (has_avx512(isa)) return make_matmul_int8_tiles(spec, isa);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  if (isa != Isa::kScalar) return make_matmul_int8_panels(spec, isa);
#else
  static_cast<void>(isa);
#endif
  return make_matmul_int8_scalar(spec);
}

MatmulSpans spans_of(const MatmulInt8Spec& spec) {
  const std::int64_t item = spec.epilogue.bytes;
  const std::int64_t left = extent(spec, spec.left_batch, {{spec.rows, spec.left_row}, {spec.depth, 1}}, 1);
  const std::int64_t right =
      extent(spec, spec.right_batch, {{spec.depth, spec.right_row}, {spec.columns, spec.right_column}}, 1);
  const std::int64_t output =
      extent(spec, spec.output_batch, {{spec.rows, spec.output_row}, {spec.columns, item}}, item);
  return {Span::reads_slack(spec.left, static_cast<std::size_t>(left)),
          Span::reads_slack(spec.right, static_cast<std::size_t>(right)),
          Span::writes(spec.output, static_cast<std::size_t>(output), static_cast<std::size_t>(item))};
}

LeadingAxes::LeadingAxes(const MatmulInt8Spec& spec) : extents_(spec.batch) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents_) count = multiplied(count, extent);
  require(count <= kLargest / 1024, "more products than an index can count");
  count_ = static_cast<int>(count);
}

std::ptrdiff_t LeadingAxes::offset(int product, const std::vector<std::ptrdiff_t>& strides) const {
  std::ptrdiff_t offset = 0;
  std::int64_t rest = product;
  for (std::size_t axis = extents_.size(); axis-- > 0;) {
    offset += rest % extents_[axis] * strides[axis];
    rest /= extents_[axis];
  }
  return offset;
}

int row_splits(int products, std::int64_t rows, int threads) {
  if (threads == 1 || products % threads == 0 || products >= 8 * threads || rows < kRowsWorthDividing) return 1;
  return threads;
}

std::vector<std::int32_t> constant_parts(const MatmulInt8Spec& spec, int counted_from, std::int64_t padded_columns) {
  const std::int64_t common = spec.depth * spec.left_zero * (spec.right_zero - counted_from);
  std::vector<std::int32_t> parts(static_cast<std::size_t>(padded_columns));
  for (std::size_t column = 0; column < static_cast<std::size_t>(spec.columns); ++column)
    parts[column] = static_cast<std::int32_t>(common + (spec.bias.empty() ? 0 : spec.bias[column]));
  return parts;
}

std::shared_ptr<Step> make_matmul_int8(const MatmulInt8Spec& spec, Isa isa) {
  check_matmul_int8(spec);
  return std::make_shared<MatmulInt8Step>(spec, make_matmul_int8_kernel(spec, isa));
}

}  // namespace tpuconvert
