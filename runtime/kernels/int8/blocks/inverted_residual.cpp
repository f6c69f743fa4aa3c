#include "int8/blocks/inverted_residual.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "int8/conv/geometry_checks.h"

namespace tpuconvert {
namespace {

constexpr const char* kKernel = "inverted_residual_int8";
constexpr std::size_t kBandBytes = 256 * 1024;  // expanded rows and depthwise results of a band
constexpr int kRowUnit = 2;                     // the depthwise kernel computes two rows at once

constexpr std::size_t rounded_up(std::size_t bytes) { return (bytes + kSlack + 63) / 64 * 64; }

void require(bool is_true, const char* message) { require_of(kKernel, is_true, message); }

bool is_pointwise(const ConvGeometry& g) {
  return g.taps() == 1 && g.groups == 1 && g.stride_h == 1 && g.stride_w == 1 && g.pad_top == 0 && g.pad_left == 0 &&
         g.height == g.out_height && g.width == g.out_width;
}

bool fits(const ConvGeometry& first, const ConvGeometry& second) {
  return first.batch == second.batch && first.out_height == second.height && first.out_width == second.width &&
         first.out_channels == second.in_channels;
}

std::size_t row_bytes(int width, int channels) {
  return static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
}

// A stage between two tensors in row order, one of which may be a band.
struct Stage {
  ConvGeometry geometry;
  std::unique_ptr<ConvInt8Kernel> kernel;
};

Stage stage_of(ConvInt8Spec spec, Isa isa, bool reads_band, bool writes_band) {
  ConvGeometry& g = spec.geometry;
  if (reads_band) {
    g.in_pixel = g.in_channels;
    g.in_row = static_cast<std::ptrdiff_t>(row_bytes(g.width, g.in_channels));
  }
  if (writes_band) {
    require(spec.epilogue.bytes == 1 && !spec.epilogue.is_dequantized && !spec.residual, "an intermediate result has bytes");
    g.out_pixel = g.out_channels;
    g.out_row = static_cast<std::ptrdiff_t>(row_bytes(g.out_width, g.out_channels));
  }
  Stage stage{g, make_conv_int8_kernel(spec, isa)};
  require(stage.kernel->has_image_rows(), "a stage cannot be computed by rows");
  require(!spec.residual || stage.kernel->adds_residual(), "the projection cannot add a residual");
  return stage;
}

class InvertedResidualStep final : public Step {
 public:
  InvertedResidualStep(const InvertedResidualSpec& spec, Isa isa)
      : input_(Span::reads_slack(first_of(spec).input, static_cast<std::size_t>(input_extent(kKernel, first_of(spec).geometry, 1)))),
        output_(Span::writes(spec.projection.output,
                             static_cast<std::size_t>(output_extent(kKernel, spec.projection.geometry, spec.projection.epilogue.bytes)),
                             static_cast<std::size_t>(spec.projection.epilogue.bytes))),
        in_image_(first_of(spec).geometry.in_image),
        depthwise_(stage_of(spec.depthwise, isa, spec.expansion.has_value(), true)),
        projection_(stage_of(spec.projection, isa, true, false)) {
    if (spec.expansion) expansion_ = stage_of(*spec.expansion, isa, false, true);
    const ConvGeometry& g = depthwise_.geometry;
    if (spec.projection.residual) {
      const ResidualSpec& residual = *spec.projection.residual;
      const ConvGeometry& p = projection_.geometry;
      other_ = Span::reads_slack(residual.other, static_cast<std::size_t>(tensor_extent(
                                                     kKernel, {p.batch, p.out_height, p.out_width},
                                                     {residual.image, residual.row, residual.pixel}, p.out_channels)));
      other_image_ = residual.image;
    }
    expanded_row_ = expansion_.kernel ? row_bytes(g.width, g.in_channels) : 0;
    middle_row_ = row_bytes(g.out_width, g.out_channels);
    while (rows_ < g.out_height && band_bytes(rows_ + kRowUnit) <= kBandBytes) rows_ += kRowUnit;
    for (const Stage* stage : {&expansion_, &depthwise_, &projection_})
      if (stage->kernel) kernel_bytes_ = std::max(kernel_bytes_, rounded_up(stage->kernel->scratch_bytes()));
    kind_ = expansion_.kernel ? "inverted_residual_int8" : "separable_int8";
    if (other_) kind_ += " + residual";
  }

  void run(const Run& run) const override {
    const ConvGeometry& g = depthwise_.geometry;
    const ConvAddresses at{run.at<const std::uint8_t>(input_.place), run.at<std::uint8_t>(output_.place),
                           other_ ? run.at<const std::uint8_t>(other_->place) : nullptr};
    const std::int64_t rows = std::int64_t{g.batch} * g.out_height;
    const int parts = static_cast<int>(std::min<std::int64_t>(run.threads(), rows));
    run.parallel(parts, [&](int part, int worker) {
      const std::int64_t end = rows * (part + 1) / parts;
      for (std::int64_t row = rows * part / parts; row < end;) {
        const std::int64_t image = row / g.out_height;
        const int first = static_cast<int>(row % g.out_height);
        const int last = static_cast<int>(std::min<std::int64_t>(g.out_height, first + end - row));
        const ConvAddresses of_image{at.input + image * in_image_, at.output + image * projection_.geometry.out_image,
                                     at.other == nullptr ? nullptr : at.other + image * other_image_};
        run_rows(of_image, first, last, run.scratch(worker));
        row += last - first;
      }
    });
  }

  std::vector<Span> spans() const override {
    std::vector<Span> found{input_, output_};
    if (other_) found.push_back(*other_);
    return found;
  }
  std::size_t scratch_bytes() const override { return kernel_bytes_ + middle_bytes(rows_) + expanded_bytes(rows_); }
  std::size_t packed_bytes() const override {
    std::size_t bytes = 0;
    for (const Stage* stage : {&expansion_, &depthwise_, &projection_})
      if (stage->kernel) bytes += stage->kernel->packed_bytes();
    return bytes;
  }
  const char* kind() const override { return kind_.c_str(); }

 private:
  static const ConvInt8Spec& first_of(const InvertedResidualSpec& spec) {
    return spec.expansion ? *spec.expansion : spec.depthwise;
  }

  // Expanded rows under the windows of `rows` rows of results.
  std::int64_t window_rows(int rows) const {
    const ConvGeometry& g = depthwise_.geometry;
    return std::int64_t{rows - 1} * g.stride_h + std::int64_t{g.kernel_h - 1} * g.dilation_h + 1;
  }
  std::size_t expanded_bytes(int rows) const {
    if (!expansion_.kernel) return 0;
    return rounded_up(static_cast<std::size_t>(std::min<std::int64_t>(window_rows(rows), depthwise_.geometry.height)) * expanded_row_);
  }
  std::size_t middle_bytes(int rows) const { return rounded_up(static_cast<std::size_t>(rows) * middle_row_); }
  std::size_t band_bytes(int rows) const { return expanded_bytes(rows) + middle_bytes(rows); }

  void run_rows(const ConvAddresses& at, int first, int last, std::uint8_t* scratch) const {
    const ConvGeometry& g = depthwise_.geometry;
    std::uint8_t* middle = scratch + kernel_bytes_;
    std::uint8_t* expanded = middle + middle_bytes(rows_);
    int start = 0, end = 0;  // expanded rows in memory
    for (int y = first; y < last; y += rows_) {
      const int next = std::min(last, y + rows_);
      const std::uint8_t* input = at.input;
      if (expansion_.kernel) {
        const std::int64_t top = std::int64_t{y} * g.stride_h - g.pad_top;
        const int wanted = static_cast<int>(std::clamp<std::int64_t>(top, 0, g.height));
        const int wanted_end = static_cast<int>(std::clamp<std::int64_t>(top + window_rows(next - y), wanted, g.height));
        if (end > wanted)
          std::memmove(expanded, expanded + static_cast<std::size_t>(wanted - start) * expanded_row_,
                       static_cast<std::size_t>(end - wanted) * expanded_row_);
        const int computed = std::max(end, wanted);
        // Addresses of row 0, which is not in memory.
        std::uint8_t* rows = expanded - static_cast<std::ptrdiff_t>(wanted) * static_cast<std::ptrdiff_t>(expanded_row_);
        if (computed < wanted_end)
          expansion_.kernel->run_image_rows({at.input, rows, nullptr}, computed, wanted_end, scratch);
        start = wanted;
        end = std::max(computed, wanted_end);
        input = rows;
      }
      std::uint8_t* results = middle - static_cast<std::ptrdiff_t>(y) * static_cast<std::ptrdiff_t>(middle_row_);
      depthwise_.kernel->run_image_rows({input, results, nullptr}, y, next, scratch);
      projection_.kernel->run_image_rows({results, at.output, at.other}, y, next, scratch);
    }
  }

  Span input_, output_;
  std::optional<Span> other_;
  std::ptrdiff_t in_image_, other_image_ = 0;
  Stage expansion_;  // without a kernel if there is none
  Stage depthwise_, projection_;
  std::size_t expanded_row_ = 0, middle_row_ = 0;  // in bytes
  std::size_t kernel_bytes_ = 0;                   // scratch memory of the stages
  int rows_ = kRowUnit;                            // rows of results of a band
  std::string kind_;
};

}  // namespace

std::shared_ptr<Step> make_inverted_residual(const InvertedResidualSpec& given, Isa isa) {
  InvertedResidualSpec spec{std::nullopt, checked(given.depthwise), checked(given.projection)};
  if (given.expansion) {
    spec.expansion = checked(*given.expansion);
    require(is_pointwise(spec.expansion->geometry), "the expansion is not a 1x1 convolution");
    require(fits(spec.expansion->geometry, spec.depthwise.geometry), "the expansion does not fit the depthwise convolution");
  }
  require(spec.depthwise.geometry.is_depthwise(), "the second stage is not a depthwise convolution");
  require(is_pointwise(spec.projection.geometry), "the projection is not a 1x1 convolution");
  require(fits(spec.depthwise.geometry, spec.projection.geometry), "the projection does not fit the depthwise convolution");
  return std::make_shared<InvertedResidualStep>(spec, isa);
}

}  // namespace tpuconvert
