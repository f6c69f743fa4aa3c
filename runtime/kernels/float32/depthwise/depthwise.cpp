#include "float32/depthwise/depthwise.h"

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/aligned.h"
#include "core/variants.h"
#include "float32/conv/conv.h"

namespace tpuconvert {

namespace {

constexpr char kName[] = "conv_float32 depthwise";

// Minimum number of multiplications per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartProducts = 1 << 14;

const DepthwiseKernels& kernels_of(Isa isa) {
  return TPU_SELECT(isa, kDepthwiseScalar, kDepthwiseAvx2, kDepthwiseAvx512, kDepthwiseNeon);
}

class DepthwiseFloatStep final : public Step {
 public:
  DepthwiseFloatStep(const ConvFloatSpec& spec, Isa isa)
      : input_(spec.input), output_(spec.output), residual_(spec.residual) {
    const ConvGeometry& g = spec.geometry;
    const DepthwiseKernels& kernels = kernels_of(isa);
    static_cast<Window&>(task_) = window_of(g, kName);
    check(spec.limits, kName);
    function_ = spec.is_precise ? kernels.run_precise : kernels.run;
    input_bytes_ = input_bytes(g, kName);
    output_bytes_ = output_bytes(g, kName);
    if (!spec.bias.empty() && spec.bias.size() != static_cast<std::size_t>(g.out_channels))
      throw std::invalid_argument("conv_float32: the bias does not fit");
    task_.limits = spec.limits;
    if (!spec.tail.empty()) {
      check_tail(spec);
      tail_ = spec.tail;
      task_.tail = tail_.data();
      task_.tail_count = static_cast<int>(tail_.size());
      task_.run_tail = spec.is_precise ? chain_kernels(isa).run_precise : chain_kernels(isa).run;
    }
    task_.channels = g.out_channels;
    task_.stride = (g.out_channels + kernels.lanes - 1) / kernels.lanes * kernels.lanes;
    const std::size_t row = static_cast<std::size_t>(task_.stride);
    weights_ = AlignedBytes(row * static_cast<std::size_t>(g.taps()) * sizeof(float));
    bias_ = AlignedBytes(row * sizeof(float));
    zeros_ = AlignedBytes(row * sizeof(float));
    float* to = weights_.as<float>();
    for (int y = 0; y < g.kernel_h; ++y)
      for (int x = 0; x < g.kernel_w; ++x, to += task_.stride)
        for (int channel = 0; channel < g.out_channels; ++channel) to[channel] = spec.weights.at(channel, 0, y, x);
    // Adding 0 to a bias turns -0 into +0.
    std::transform(spec.bias.begin(), spec.bias.end(), bias_.as<float>(), [](float x) { return x + 0.0f; });
    task_.weights = weights_.as<float>();
    task_.bias = bias_.as<float>();
    task_.zeros = zeros_.as<float>();
    kind_ = std::string(kName) + " " + std::to_string(g.kernel_h) + "x" + std::to_string(g.kernel_w);
    if (spec.is_precise) kind_ += " binary64";
  }

  void run(const Run& run) const override {
    const auto* input = run.at<const float>(input_);
    const float* residual = residual_ ? run.at<const float>(*residual_) : nullptr;
    auto* output = run.at<float>(output_);
    const std::int64_t rows = static_cast<std::int64_t>(task_.batch) * task_.out_height;
    const std::int64_t products = rows * task_.out_width * task_.stride * task_.taps();
    // Parts have an even number of rows, because the kernels compute two rows at a time.
    const std::int64_t pairs = (rows + 1) / 2;
    const std::int64_t most = std::min({pairs, products / kPartProducts + 1, std::int64_t{run.threads()} * 4});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    run.parallel(parts, [&](int part, int) {
      const std::int64_t first = pairs * part / parts * 2, last = std::min(rows, pairs * (part + 1) / parts * 2);
      if (task_.tail_count == 0) {
        function_(task_, first, last, input, residual, output);
        return;
      }
      for (std::int64_t row = first; row < last; row += 2) {
        const std::int64_t end = std::min(row + 2, last);
        function_(task_, row, end, input, nullptr, output);
        for (std::int64_t done = row; done < end; ++done) apply_tail(done, residual, output);
      }
    });
  }

  std::vector<Span> spans() const override {
    std::vector<Span> all{Span::reads(input_, input_bytes_, sizeof(float)),
                          Span::writes(output_, output_bytes_, sizeof(float))};
    if (residual_) all.push_back(Span::reads(*residual_, output_bytes_, sizeof(float)));
    return all;
  }
  std::size_t packed_bytes() const override { return weights_.size() + bias_.size() + zeros_.size(); }
  const char* kind() const override { return kind_.c_str(); }

 private:
  // Applies the fused operators to a row of the result while the row is in the cache.
  void apply_tail(std::int64_t row, const float* residual, float* output) const {
    const std::ptrdiff_t start = row / task_.out_height * task_.out_image + row % task_.out_height * task_.out_row;
    const bool is_dense = task_.out_pixel == task_.channels;
    for (int x = 0; x < (is_dense ? 1 : task_.out_width); ++x) {
      const std::ptrdiff_t at = start + x * task_.out_pixel;
      const float* const operands[] = {output + at, residual == nullptr ? nullptr : residual + at};
      const bool are_single[] = {false, false};
      const std::int64_t count = is_dense ? std::int64_t{task_.out_width} * task_.channels : task_.channels;
      task_.run_tail({task_.tail, task_.tail_count, operands, are_single, output + at, count});
    }
  }

  Place input_, output_;
  std::optional<Place> residual_;
  DepthwiseTask task_;
  DepthwiseFunction function_ = nullptr;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
  AlignedBytes weights_, bias_, zeros_;
  std::vector<ChainOp> tail_;
  std::string kind_;
};

}  // namespace

std::shared_ptr<Step> make_depthwise_float(const ConvFloatSpec& spec, Isa isa) {
  return std::make_shared<DepthwiseFloatStep>(spec, isa);
}

}  // namespace tpuconvert
