// Parameter checks of an integer convolution, and the step that runs its kernel.
#include "int8/conv/conv.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <utility>

#include "int8/conv/conv_tiles.h"
#include "int8/conv/geometry_checks.h"
#include "int8/depthwise/depthwise.h"
#include "int8/tile/unit.h"

namespace tpuconvert {

namespace {

// --- checks ----------------------------------------------------------------------------------------------------------

constexpr const char* kKernel = "conv_int8";

void require(bool is_true, const char* message) { require_of(kKernel, is_true, message); }

std::int64_t input_extent(const ConvGeometry& g) { return input_extent(kKernel, g, 1); }

std::int64_t output_extent(const ConvGeometry& g, int bytes) { return output_extent(kKernel, g, bytes); }

std::int64_t other_extent(const ConvInt8Spec& spec) {
  const ConvGeometry& g = spec.geometry;
  return tensor_extent(kKernel, {g.batch, g.out_height, g.out_width},
                       {spec.residual->image, spec.residual->row, spec.residual->pixel}, g.out_channels);
}

// Bound of the accumulators, computed from the number of multiplications only.
std::int64_t reach(const ConvInt8Spec& spec) {
  std::int64_t largest_bias = 0;
  for (const std::int32_t value : spec.bias) largest_bias = std::max(largest_bias, std::abs(std::int64_t{value}));
  return std::int64_t{spec.geometry.taps()} * spec.geometry.group_in() * 255 * 255 + largest_bias;
}

void check_parameters(const ConvInt8Spec& spec) {
  const ConvGeometry& g = spec.geometry;
  const auto channels = static_cast<std::size_t>(g.out_channels);
  require(spec.weights.data != nullptr, "weights are missing");
  const std::vector<std::int32_t>& zero = spec.weights.zero;
  require(zero.size() <= 1 || zero.size() == channels, "weights need one zero point, or one per output channel");
  const int lowest = spec.weights.is_signed ? -128 : 0;
  for (const std::int32_t value : zero)
    require(value >= lowest && value <= lowest + 255, "a zero point lies outside the type of the weights");
  require(spec.bias.empty() || spec.bias.size() == channels, "biases must be one per output channel");
  require(spec.input_zero >= 0 && spec.input_zero <= 255, "the zero point of the input is not a stored byte");
  // Sums without bias must not overflow 32 bits either, because kernels add the bias first or last. The exact bound of
  // each channel is computed only if the simple bound is too large.
  if (reach(spec) <= kLargestIndex) return;
  for (int channel = 0; channel < g.out_channels; ++channel)
    if (largest_sum(spec, channel) > kLargestIndex) throw std::overflow_error("conv_int8: a sum may leave 32 bits");
}

// --- bounds ----------------------------------------------------------------------------------------------------------

template <typename Element>
SignedSums sums_of_run(const Element* elements, std::int64_t count, std::ptrdiff_t stride, int zero) {
  SignedSums sums;
  constexpr std::int64_t kBlock = 1 << 20;  // 2^20 * 255 fits 32 bits
  for (std::int64_t start = 0; start < count; start += kBlock) {
    const std::int64_t end = std::min(count, start + kBlock);
    std::int32_t total = 0, magnitudes = 0;
    for (std::int64_t i = start; i < end; ++i) {
      const std::int32_t value = elements[i * stride] - zero;
      total += value;
      magnitudes += value < 0 ? -value : value;
    }
    sums.positive += (std::int64_t{magnitudes} + total) / 2;
    sums.negative += (std::int64_t{total} - magnitudes) / 2;
  }
  return sums;
}

struct Axis {
  std::int64_t count;
  std::ptrdiff_t stride;
};

template <typename Element>
SignedSums sums_of_channel(const ConvInt8Spec& spec, int channel) {
  const ConvGeometry& g = spec.geometry;
  const WeightView& w = spec.weights;
  const int zero = w.zero_of(channel);
  Axis axes[3] = {{g.group_in(), w.stride_in}, {g.kernel_h, w.stride_y}, {g.kernel_w, w.stride_x}};
  // The order of summation does not matter: the axis with the smallest stride becomes the innermost one, and axes that
  // are contiguous are merged.
  std::sort(axes, axes + 3, [](const Axis& a, const Axis& b) {
    return a.count == 1 ? b.count != 1 : b.count != 1 && std::abs(a.stride) < std::abs(b.stride);
  });
  if (axes[1].stride == axes[2].stride * axes[2].count) std::swap(axes[1], axes[2]);
  for (int merged = 0; merged < 2; ++merged) {
    if (axes[1].stride != axes[0].stride * axes[0].count && axes[0].count != 1 && axes[1].count != 1) break;
    axes[0] = {axes[0].count * axes[1].count, axes[0].count == 1 ? axes[1].stride : axes[0].stride};
    axes[1] = axes[2];
    axes[2] = {1, 0};
  }
  SignedSums sums;
  const Element* first = static_cast<const Element*>(w.data) + channel * w.stride_out;
  for (std::int64_t i = 0; i < axes[2].count; ++i) {
    for (std::int64_t j = 0; j < axes[1].count; ++j) {
      const Element* run = first + i * axes[2].stride + j * axes[1].stride;
      const SignedSums part = axes[0].stride == 1 ? sums_of_run(run, axes[0].count, 1, zero)
                                                  : sums_of_run(run, axes[0].count, axes[0].stride, zero);
      sums.positive += part.positive;
      sums.negative += part.negative;
    }
  }
  return sums;
}

// --- the step --------------------------------------------------------------------------------------------------------

// A residual add as a second pass over the result, one image row at a time.
class ResidualAfter {
 public:
  ResidualAfter(const ConvInt8Spec& spec, Isa isa)
      : g_(spec.geometry), spec_(*spec.residual), residual_(spec_, g_.out_channels, isa) {
    is_adjacent_ = g_.out_width == 1 || (g_.out_pixel == g_.out_channels && spec_.pixel == g_.out_channels);
    panel_ = residual_.add_panel(0, g_.out_channels, is_adjacent_);
  }

  void run(const Run& run, const ConvAddresses& at) const {
    const std::int64_t rows = std::int64_t{g_.batch} * g_.out_height;
    const int parts = static_cast<int>(std::min<std::int64_t>(run.threads(), rows));
    run.parallel(parts, [&](int part, int) {
      for (std::int64_t row = rows * part / parts; row < rows * (part + 1) / parts; ++row) {
        const std::int64_t image = row / g_.out_height, y = row % g_.out_height;
        add_row(at.output + image * g_.out_image + y * g_.out_row, at.other + image * spec_.image + y * spec_.row);
      }
    });
  }

 private:
  void add_row(std::uint8_t* bytes, const std::uint8_t* other) const {
    const auto channels = static_cast<std::size_t>(g_.out_channels);
    if (is_adjacent_) {
      residual_.run(panel_, 1, channels * static_cast<std::size_t>(g_.out_width), 0, &bytes, &other);
      return;
    }
    for (int x = 0; x < g_.out_width; ++x, bytes += g_.out_pixel, other += spec_.pixel)
      residual_.run(panel_, 1, channels, 0, &bytes, &other);
  }

  ConvGeometry g_;
  ResidualSpec spec_;
  Residual residual_;
  Residual::Panel panel_;
  bool is_adjacent_;
};

class ConvInt8Step : public Step {
 public:
  ConvInt8Step(const ConvInt8Spec& spec, Isa isa, std::unique_ptr<ConvInt8Kernel> kernel)
      : input_(Span::reads_slack(spec.input, static_cast<std::size_t>(input_extent(spec.geometry)))),
        output_(Span::writes(spec.output, static_cast<std::size_t>(output_extent(spec.geometry, spec.epilogue.bytes)),
                             static_cast<std::size_t>(spec.epilogue.bytes))),
        kernel_(std::move(kernel)),
        kind_(kernel_->kind()) {
    if (!spec.residual) return;
    other_ = Span::reads_slack(spec.residual->other, static_cast<std::size_t>(other_extent(spec)));
    kind_ += " + residual";
    if (!kernel_->adds_residual()) after_ = std::make_unique<ResidualAfter>(spec, isa);
  }

  void run(const Run& run) const override {
    const ConvAddresses at{run.at<const std::uint8_t>(input_.place), run.at<std::uint8_t>(output_.place),
                           other_ ? run.at<const std::uint8_t>(other_->place) : nullptr};
    const int parts = kernel_->parts(run.threads());
    run.parallel(parts, [&](int part, int worker) { kernel_->run(at, part, parts, run.scratch(worker)); });
    if (after_) after_->run(run, at);
  }

  std::vector<Span> spans() const override {
    std::vector<Span> found{input_, output_};
    if (other_) found.push_back(*other_);
    return found;
  }
  std::size_t scratch_bytes() const override { return kernel_->scratch_bytes(); }
  std::size_t packed_bytes() const override { return kernel_->packed_bytes(); }
  const char* kind() const override { return kind_.c_str(); }

 private:
  Span input_;
  Span output_;
  std::optional<Span> other_;
  std::unique_ptr<ConvInt8Kernel> kernel_;
  std::unique_ptr<ResidualAfter> after_;
  std::string kind_;
};

}  // namespace

std::unique_ptr<ConvInt8Kernel> make_conv_int8_kernel(const ConvInt8Spec& spec, Isa isa) {
#if defined(__x86_64__)
  if (has_avx512(isa))
    return spec.geometry.is_depthwise() ? avx512::make_depthwise(spec)
                                        : avx512::make_conv_tiles(spec, avx512::tile_unit(isa));
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  if (isa != Isa::kScalar) return make_conv_int8_panels(spec, isa);
#else
  static_cast<void>(isa);
#endif
  return make_conv_int8_scalar(spec);
}

std::string kind_of(const ConvGeometry& geometry) {
  if (geometry.taps() == 1 && geometry.groups == 1 && geometry.height == 1) return "matmul_int8";
  const std::string window = std::to_string(geometry.kernel_h) + "x" + std::to_string(geometry.kernel_w);
  return (geometry.is_depthwise() ? "depthwise_int8 " : "conv_int8 ") + window;
}

SignedSums signed_sums(const ConvInt8Spec& spec, int channel) {
  return spec.weights.is_signed ? sums_of_channel<std::int8_t>(spec, channel)
                                : sums_of_channel<std::uint8_t>(spec, channel);
}

std::int64_t largest_sum(const ConvInt8Spec& spec, int channel) {
  const SignedSums sums = signed_sums(spec, channel);
  const std::int64_t below = -spec.input_zero, above = 255 - spec.input_zero;  // range of input - zero point
  const std::int64_t bias = spec.bias.empty() ? 0 : spec.bias[static_cast<std::size_t>(channel)];
  const std::int64_t highest = sums.positive * above + sums.negative * below;
  const std::int64_t lowest = sums.positive * below + sums.negative * above;
  // Also bounds the sum without bias, so that kernels may add the bias at any time.
  return std::max({highest, -lowest, std::abs(highest + bias), std::abs(lowest + bias)});
}

std::shared_ptr<Step> make_conv_int8(const ConvInt8Spec& spec, Isa isa) {
  return make_conv_int8_step(spec, isa, make_conv_int8_kernel);
}

ConvInt8Spec checked(const ConvInt8Spec& given) {
  check_geometry(kKernel, given.geometry, 1, given.epilogue.bytes);
  check_parameters(given);
  ConvInt8Spec spec = given;
  spec.epilogue = without_ties(given.epilogue, reach(given));
  if (spec.residual) {
    require(spec.epilogue.bytes == 1 && !spec.epilogue.is_dequantized, "a residual is added to bytes");
    for (const std::ptrdiff_t stride : {spec.residual->pixel, spec.residual->row})
      require(stride >= 0 && stride <= kLargestIndex, "a stride of the residual exceeds 32 bits");
    other_extent(spec);
  }
  return spec;
}

std::shared_ptr<Step> make_conv_int8_step(const ConvInt8Spec& given, Isa isa, MakeConvKernel make_kernel) {
  const ConvInt8Spec spec = checked(given);
  return std::make_shared<ConvInt8Step>(spec, isa, make_kernel(spec, isa));
}

}  // namespace tpuconvert
