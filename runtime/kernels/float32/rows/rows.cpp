#include "float32/rows/rows.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/variants.h"

namespace tpuconvert {

namespace {

// Minimum number of elements per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartElements = 1 << 12;

// Columns of a reduction are divided at multiples of this number, so that parts fill whole registers.
constexpr std::int64_t kColumns = 16;

constexpr std::int64_t kFloat = sizeof(float);

const RowKernels& kernels_of(Isa isa) { return TPU_SELECT(isa, kRowsScalar, kRowsAvx2, kRowsAvx512, kRowsNeon); }

// Bytes of a float32 tensor [a, b, c].
std::size_t bytes_of(std::int64_t a, std::int64_t b, std::int64_t c, const char* kind) {
  std::int64_t total = 0;
  if (a < 1 || b < 1 || c < 1 || __builtin_mul_overflow(a, b, &total) || __builtin_mul_overflow(total, c, &total) ||
      total > INT64_MAX / 16)
    throw std::invalid_argument(std::string(kind) + ": an extent is not possible");
  return static_cast<std::size_t>(total * kFloat);
}

int parts_of(const Run& run, std::int64_t units, std::int64_t elements) {
  if (run.threads() == 1) return 1;
  return static_cast<int>(std::min({units, elements / kPartElements + 1, std::int64_t{run.threads()} * 2}));
}

class SoftmaxStep final : public Step {
 public:
  SoftmaxStep(const SoftmaxFloatSpec& spec, Isa isa)
      : kernels_(kernels_of(isa)), x_(spec.x), y_(spec.y), rows_(spec.rows), task_(spec),
        bytes_(bytes_of(spec.rows, spec.count, 1, kind())) {}

  void run(const Run& run) const override {
    const int parts = parts_of(run, rows_, rows_ * task_.count);
    run.parallel(parts, [&, this](int part, int worker) {
      kernels_.softmax(task_, rows_ * part / parts, rows_ * (part + 1) / parts, run.at<const float>(x_), run.at<float>(y_),
                       reinterpret_cast<double*>(run.scratch(worker)));
    });
  }

  std::vector<Span> spans() const override { return {Span::reads(x_, bytes_, kFloat), Span::writes(y_, bytes_, kFloat)}; }
  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>((task_.count + kColumns - 1) / kColumns * kColumns) * sizeof(double);
  }
  const char* kind() const override { return "softmax_float32"; }

 private:
  const RowKernels& kernels_;
  Place x_, y_;
  std::int64_t rows_;
  SoftmaxTask task_;
  std::size_t bytes_;
};

class NormStep final : public Step {
 public:
  NormStep(const NormFloatSpec& spec, Isa isa)
      : kernels_(kernels_of(isa)), x_(spec.x), y_(spec.y), scale_(spec.scale), bias_(spec.bias), rows_(spec.rows),
        task_(spec) {
    bytes_ = bytes_of(spec.rows, spec.count, 1, kind());
    if (spec.block < 1 || spec.count % spec.block != 0 || spec.groups < 1)
      throw std::invalid_argument("norm_float32: the factors do not fit");
    factor_bytes_ = bytes_of(spec.count / spec.block, spec.groups, 1, kind());
  }

  void run(const Run& run) const override {
    const int parts = parts_of(run, rows_, rows_ * task_.count);
    const float* scale = scale_ ? run.at<const float>(*scale_) : nullptr;
    const float* bias = bias_ ? run.at<const float>(*bias_) : nullptr;
    run.parallel(parts, [&, this](int part, int) {
      kernels_.normalize(task_, rows_ * part / parts, rows_ * (part + 1) / parts, run.at<const float>(x_), scale, bias,
                         run.at<float>(y_));
    });
  }

  std::vector<Span> spans() const override {
    std::vector<Span> all{Span::reads(x_, bytes_, kFloat), Span::writes(y_, bytes_, kFloat)};
    if (scale_) all.push_back(Span::reads(*scale_, factor_bytes_, kFloat));
    if (bias_) all.push_back(Span::reads(*bias_, factor_bytes_, kFloat));
    return all;
  }
  const char* kind() const override { return "norm_float32"; }

 private:
  const RowKernels& kernels_;
  Place x_, y_;
  std::optional<Place> scale_, bias_;
  std::int64_t rows_;
  NormTask task_;
  std::size_t bytes_ = 0, factor_bytes_ = 0;
};

class ReduceStep final : public Step {
 public:
  ReduceStep(const ReduceFloatSpec& spec, Isa isa)
      : kernels_(kernels_of(isa)), x_(spec.x), y_(spec.y), outer_(spec.outer), task_(spec) {
    in_bytes_ = bytes_of(spec.outer, spec.count, spec.inner, kind());
    out_bytes_ = bytes_of(spec.outer, spec.inner, 1, kind());
  }

  void run(const Run& run) const override {
    const std::int64_t columns = (task_.inner + kColumns - 1) / kColumns;
    const bool divides_columns = outer_ < run.threads();
    const std::int64_t units = divides_columns ? columns : outer_;
    const int parts = parts_of(run, units, outer_ * task_.count * task_.inner);
    run.parallel(parts, [&, this](int part, int) {
      const std::int64_t begin = units * part / parts, end = units * (part + 1) / parts;
      const float* x = run.at<const float>(x_);
      float* y = run.at<float>(y_);
      if (divides_columns) {
        // With one inner column there is one unit, so that rows are not written twice.
        kernels_.reduce(task_, 0, outer_, begin * kColumns, std::min(end * kColumns, task_.inner), x, y);
      } else {
        kernels_.reduce(task_, begin, end, 0, task_.inner, x, y);
      }
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(x_, in_bytes_, kFloat), Span::writes(y_, out_bytes_, kFloat)};
  }
  const char* kind() const override { return "reduce_float32"; }

 private:
  const RowKernels& kernels_;
  Place x_, y_;
  std::int64_t outer_;
  ReduceTask task_;
  std::size_t in_bytes_ = 0, out_bytes_ = 0;
};

}  // namespace

void precise_powers(const float* x, float largest, std::int64_t count, double* powers) {
  const std::int64_t whole = (count + kColumns - 1) / kColumns * kColumns;
  for (std::int64_t i = 0; i < count; ++i) powers[i] = std::exp(static_cast<double>(x[i]) - static_cast<double>(largest));
  for (std::int64_t i = count; i < whole; ++i) powers[i] = 0;
}

std::shared_ptr<Step> make_softmax_float(const SoftmaxFloatSpec& spec, Isa isa) {
  return std::make_shared<SoftmaxStep>(spec, isa);
}

std::shared_ptr<Step> make_norm_float(const NormFloatSpec& spec, Isa isa) {
  return std::make_shared<NormStep>(spec, isa);
}

std::shared_ptr<Step> make_reduce_float(const ReduceFloatSpec& spec, Isa isa) {
  return std::make_shared<ReduceStep>(spec, isa);
}

}  // namespace tpuconvert
