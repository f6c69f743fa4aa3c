#include "float32/matmul/matmul.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/aligned.h"
#include "float32/matmul/matmul_kernel.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kFloat = sizeof(float);

// Minimum number of multiplications per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartProducts = 1 << 14;

[[noreturn]] void refuse(const char* what) { throw std::invalid_argument(std::string("matmul_float32: ") + what); }

std::ptrdiff_t in_floats(std::int64_t bytes) {
  if (bytes < 0 || bytes % kFloat != 0) refuse("a stride is not possible");
  return bytes / kFloat;
}

// Bytes from the start of the first element to the end of the last one, for matrices with these extents and strides.
std::size_t extent_of(const std::vector<std::int64_t>& starts, std::int64_t rows, std::int64_t row, std::int64_t columns,
                      std::int64_t column) {
  std::int64_t total = kFloat, step = 0;
  const std::int64_t counts[] = {rows, columns}, strides[] = {row, column};
  for (int i = 0; i < 2; ++i)
    if (__builtin_mul_overflow(counts[i] - 1, strides[i], &step) || __builtin_add_overflow(total, step, &total))
      refuse("extents are too large");
  if (__builtin_add_overflow(total, *std::max_element(starts.begin(), starts.end()), &total))
    refuse("extents are too large");
  return static_cast<std::size_t>(total);
}

class MatmulFloatStep final : public Step {
 public:
  MatmulFloatStep(const MatmulFloatSpec& spec, Isa isa)
      : kernels_(matmul_kernels(isa)), left_(spec.left), right_(spec.right), output_(spec.output) {
    if (spec.rows < 1 || spec.columns < 1 || spec.depth < 1 || spec.left_starts.empty() ||
        std::max({spec.rows, spec.columns, spec.depth}) > INT32_MAX / 64)
      refuse("an extent is not possible");
    if (spec.left_starts.size() != spec.right_starts.size() || spec.left_starts.size() != spec.out_starts.size())
      refuse("the batches have different sizes");
    if (!spec.bias.empty() && spec.bias.size() != static_cast<std::size_t>(spec.columns)) refuse("the bias does not fit");
    function_ = spec.is_precise ? kernels_.matmul_precise : kernels_.matmul;
    task_.rows = spec.rows;
    task_.columns = spec.columns;
    task_.depth = spec.depth;
    task_.left_row = in_floats(spec.left_row);
    task_.left_depth = in_floats(spec.left_depth);
    task_.right_depth = in_floats(spec.right_depth);
    task_.right_column = in_floats(spec.right_column);
    task_.out_row = in_floats(spec.out_row);
    for (const std::int64_t start : spec.left_starts) left_starts_.push_back(in_floats(start));
    for (const std::int64_t start : spec.right_starts) right_starts_.push_back(in_floats(start));
    for (const std::int64_t start : spec.out_starts) out_starts_.push_back(in_floats(start));
    task_.left = left_starts_.data();
    task_.right = right_starts_.data();
    task_.output = out_starts_.data();
    left_bytes_ = extent_of(spec.left_starts, spec.rows, spec.left_row, spec.depth, spec.left_depth);
    right_bytes_ = extent_of(spec.right_starts, spec.depth, spec.right_depth, spec.columns, spec.right_column);
    out_bytes_ = extent_of(spec.out_starts, spec.rows, spec.out_row, spec.columns, kFloat);
    const std::int64_t width = kernels_.panel_vectors * kernels_.lanes;
    panels_ = (spec.columns + width - 1) / width;
    bias_ = AlignedBytes(static_cast<std::size_t>(panels_ * width * kFloat));
    // Adding 0 to a bias turns -0 into +0.
    std::transform(spec.bias.begin(), spec.bias.end(), bias_.as<float>(), [](float x) { return x + 0.0f; });
    task_.bias = bias_.as<float>();
  }

  void run(const Run& run) const override {
    const std::int64_t units = panels_ * static_cast<std::int64_t>(left_starts_.size());
    const std::int64_t products = units * task_.rows * task_.depth * kernels_.lanes;
    const std::int64_t most = std::min({units, products / kPartProducts + 1, std::int64_t{run.threads()} * 4});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    run.parallel(parts, [&, this](int part, int worker) {
      function_(task_, units * part / parts, units * (part + 1) / parts, run.at<const float>(left_),
                run.at<const float>(right_), run.at<float>(output_), run.scratch(worker));
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(left_, left_bytes_, kFloat), Span::reads(right_, right_bytes_, kFloat),
            Span::writes(output_, out_bytes_, kFloat)};
  }
  std::size_t scratch_bytes() const override {
    const std::int64_t width = kernels_.panel_vectors * kernels_.lanes;
    const std::int64_t gathered = task_.left_depth == 1 ? 0 : kernels_.tile_rows;
    return static_cast<std::size_t>(task_.depth * (width + gathered) * kFloat);
  }
  std::size_t packed_bytes() const override { return bias_.size(); }
  const char* kind() const override { return "matmul_float32"; }

 private:
  using Function = void (*)(const MatmulTask&, std::int64_t, std::int64_t, const float*, const float*, float*,
                            std::uint8_t*);

  const MatmulKernels& kernels_;
  Place left_, right_, output_;
  MatmulTask task_;
  Function function_ = nullptr;
  std::vector<std::ptrdiff_t> left_starts_, right_starts_, out_starts_;
  std::size_t left_bytes_ = 0, right_bytes_ = 0, out_bytes_ = 0;
  std::int64_t panels_ = 0;
  AlignedBytes bias_;
};

}  // namespace

std::shared_ptr<Step> make_matmul_float(const MatmulFloatSpec& spec, Isa isa) {
  return std::make_shared<MatmulFloatStep>(spec, isa);
}

}  // namespace tpuconvert
