#include "int8/norm/norm_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "core/aligned.h"
#include "core/variants.h"
#include "float32/rows/rows.h"

namespace tpuconvert {

namespace {

constexpr std::int64_t kLongest = 1 << 20;
constexpr std::int64_t kLanes = 16;
// minimum per part: below, starting another thread costs more than it gains
constexpr std::int64_t kPartElements = 1 << 12;

void require(bool is_true, const char* message) {
  if (!is_true) throw std::invalid_argument(std::string("norm_quantize: ") + message);
}

const RowKernels& exact_kernels(Isa isa) {
  return TPU_SELECT(isa, kRowsScalar, kRowsAvx2, kRowsAvx512, kRowsNeon);
}

float largest_magnitude(const std::vector<float>& values, float otherwise) {
  float largest = values.empty() ? otherwise : 0.0f;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

class NormQuantizeStep : public Step {
 public:
  NormQuantizeStep(const NormQuantizeSpec& spec, Isa isa)
      : spec_(spec), exact_(exact_kernels(isa)), kernels_(quantize_row_kernels(isa)), quick_(kernels_.norm) {
    const auto count = static_cast<std::size_t>(spec.count);
    const std::size_t padded = (count + kLanes - 1) / kLanes * kLanes;
    row_bytes_ = padded * sizeof(float);
    parameters_ = AlignedBytes(2 * row_bytes_);
    auto* factor = parameters_.as<float>();
    float* bias = factor + padded;
    for (std::size_t i = 0; i < count; ++i) {
      factor[i] = (spec.factor.empty() ? 1.0f : spec.factor[i]) * spec.to.scale;
      bias[i] = (spec.bias.empty() ? 0.0f : spec.bias[i]) * spec.to.scale;
    }
    quick_task_ = {spec.count, spec.epsilon, factor, bias, spec.to, 0.0f, 0.0f, 0.0f};
    exact_task_.count = spec.count;
    exact_task_.epsilon = spec.epsilon;
    bound_errors();
  }

  void run(const Run& run) const override {
    const std::int64_t elements = spec_.rows * spec_.count;
    const int parts = run.threads() == 1 ? 1
                                         : static_cast<int>(std::min<std::int64_t>(
                                               {spec_.rows, elements / kPartElements + 1, 2 * run.threads()}));
    run.parallel(parts, [&](int part, int worker) {
      for (std::int64_t row = spec_.rows * part / parts; row < spec_.rows * (part + 1) / parts; ++row)
        this->row(run, row, reinterpret_cast<float*>(run.scratch(worker)));
    });
  }

  std::vector<Span> spans() const override {
    const std::size_t elements = static_cast<std::size_t>(spec_.rows * spec_.count), bytes = elements * sizeof(float);
    std::vector<Span> all{Span::reads_slack(spec_.x, bytes, sizeof(float)), Span::writes(spec_.bytes, elements)};
    if (spec_.residual) all.push_back(Span::reads_slack(*spec_.residual, bytes, sizeof(float)));
    for (const std::optional<Place>& place : {spec_.sum, spec_.reals})
      if (place) all.push_back(Span::writes(*place, bytes, sizeof(float)));
    return all;
  }
  // One row of sums and one row of normalized values.
  std::size_t scratch_bytes() const override { return 2 * row_bytes_; }
  std::size_t packed_bytes() const override { return parameters_.size(); }
  const char* kind() const override { return "norm_quantize"; }

 private:
  // Bounds the float32 error of norm_row, in units of 2^-24. A sum has an error of count / 16 + 8 units relative to the
  // sum of the magnitudes. The error of the variance is halved by the square root. Six operations follow, and the
  // definition and the parameters have three roundings.
  void bound_errors() {
    if (spec_.reals) quick_ = nullptr;  // the normalized values are stored, so they must be exact
    const float most_factor = largest_magnitude(spec_.factor, 1.0f) * spec_.to.scale;
    const float most_bias = largest_magnitude(spec_.bias, 0.0f) * spec_.to.scale;
    // An error beyond the limits of a byte does not matter, but values must fit an integer.
    if (!(most_factor * std::sqrt(static_cast<float>(spec_.count)) + most_bias < 0x1p19f)) quick_ = nullptr;
    const float sums = static_cast<float>(spec_.count) / 16 + 8;
    quick_task_.relative_error = 1.1f * (sums / 2 + 9) * 0x1p-24f;
    quick_task_.error_bound = quick_task_.relative_error * most_bias;
    quick_task_.mean_error = 1.1f * sums * 0x1p-24f * most_factor;
    if (!(quick_task_.error_bound + 64 * quick_task_.mean_error < 0.25f)) quick_ = nullptr;
  }

  void row(const Run& run, std::int64_t row, float* scratch) const {
    const std::int64_t start = row * spec_.count;
    const float* x = run.at<const float>(spec_.x) + start;
    std::uint8_t* bytes = run.at<std::uint8_t>(spec_.bytes) + start;
    if (spec_.residual) {
      float* sum = spec_.sum ? run.at<float>(*spec_.sum) + start : scratch;
      kernels_.add(x, run.at<const float>(*spec_.residual) + start, spec_.count, sum);
      x = sum;
    }
    if (quick_ != nullptr && quick_(quick_task_, x, bytes)) return;
    float* reals = spec_.reals ? run.at<float>(*spec_.reals) + start : scratch + row_bytes_ / sizeof(float);
    exact_.normalize(exact_task_, 0, 1, x, spec_.factor.empty() ? nullptr : spec_.factor.data(),
                     spec_.bias.empty() ? nullptr : spec_.bias.data(), reals);
    kernels_.quantize(spec_.to, reals, spec_.count, bytes);
  }

  NormQuantizeSpec spec_;
  const RowKernels& exact_;
  const QuantizeRowKernels& kernels_;
  NormQuantizeFunction quick_;
  NormQuantizeTask quick_task_;
  NormTask exact_task_;
  AlignedBytes parameters_;
  std::size_t row_bytes_ = 0;
};

}  // namespace

std::shared_ptr<Step> make_norm_quantize(const NormQuantizeSpec& spec, Isa isa) {
  require(spec.rows >= 1 && spec.count >= 1 && spec.count <= kLongest && spec.rows <= (std::int64_t{1} << 40),
          "an extent is not possible");
  require((spec.factor.empty() || static_cast<std::int64_t>(spec.factor.size()) == spec.count) &&
              (spec.bias.empty() || static_cast<std::int64_t>(spec.bias.size()) == spec.count),
          "factors are one per element of a row");
  require(!spec.sum || spec.residual.has_value(), "there is no sum without a residual");
  check_quantization(spec.to);
  return std::make_shared<NormQuantizeStep>(spec, isa);
}

}  // namespace tpuconvert
