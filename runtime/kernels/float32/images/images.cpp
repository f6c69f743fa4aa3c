#include "float32/images/images.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/variants.h"

namespace tpuconvert {

namespace {

// Minimum number of elements per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartElements = 1 << 13;

constexpr char kPool[] = "pool_float32";
constexpr char kResize[] = "resize_float32";

const ImageKernels& kernels_of(Isa isa) {
  return TPU_SELECT(isa, kImagesScalar, kImagesAvx2, kImagesAvx512, kImagesNeon);
}

int parts_of(const Run& run, std::int64_t rows, std::int64_t elements) {
  if (run.threads() == 1) return 1;
  return static_cast<int>(std::min({rows, elements / kPartElements + 1, std::int64_t{run.threads()} * 4}));
}

class PoolStep final : public Step {
 public:
  PoolStep(const PoolFloatSpec& spec, Isa isa)
      : kernels_(kernels_of(isa)), input_(spec.input), output_(spec.output), divisors_(spec.divisors) {
    const ConvGeometry& g = spec.geometry;
    static_cast<Window&>(task_) = window_of(g, kPool);
    if (g.in_channels != g.out_channels || g.dilation_h != 1 || g.dilation_w != 1)
      throw std::invalid_argument("pool_float32: the geometry is not one of a pooling");
    if (!divisors_.empty() &&
        divisors_.size() != static_cast<std::size_t>(g.out_height) * static_cast<std::size_t>(g.out_width))
      throw std::invalid_argument("pool_float32: one divisor per window is needed");
    task_.channels = g.in_channels;
    task_.is_max = divisors_.empty();
    task_.divisors = divisors_.data();
    input_bytes_ = input_bytes(g, kPool);
    output_bytes_ = output_bytes(g, kPool);
    rows_ = static_cast<std::int64_t>(g.batch) * g.out_height;
    work_ = rows_ * g.out_width * g.in_channels * std::min(g.kernel_h, g.height) * std::min(g.kernel_w, g.width);
  }

  void run(const Run& run) const override {
    const int parts = parts_of(run, rows_, work_);
    run.parallel(parts, [&, this](int part, int) {
      kernels_.pool(task_, rows_ * part / parts, rows_ * (part + 1) / parts, run.at<const float>(input_),
                    run.at<float>(output_));
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(input_, input_bytes_, sizeof(float)), Span::writes(output_, output_bytes_, sizeof(float))};
  }
  const char* kind() const override { return kPool; }

 private:
  const ImageKernels& kernels_;
  Place input_, output_;
  std::vector<double> divisors_;
  PoolTask task_;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
  std::int64_t rows_ = 0, work_ = 0;
};

class ResizeStep final : public Step {
 public:
  ResizeStep(const ResizeFloatSpec& spec, Isa isa)
      : kernels_(kernels_of(isa)), input_(spec.input), output_(spec.output), down_(spec.rows), along_(spec.columns) {
    const ConvGeometry& g = spec.geometry;
    const Window window = window_of(g, kResize);
    check(down_, g.out_height, g.height);
    check(along_, g.out_width, g.width);
    if (g.in_channels != g.out_channels || window.out_pixel != g.out_channels ||
        window.out_row != g.out_width * window.out_pixel || window.out_image != g.out_height * window.out_row)
      throw std::invalid_argument("resize_float32: the geometry is not one of a resize");
    task_.out_height = g.out_height;
    task_.out_width = g.out_width;
    task_.channels = g.in_channels;
    task_.in_pixel = window.in_pixel;
    task_.in_row = window.in_row;
    task_.in_image = window.in_image;
    task_.rows = down_.data();
    task_.columns = along_.data();
    input_bytes_ = input_bytes(g, kResize);
    output_bytes_ = output_bytes(g, kResize);
    rows_ = static_cast<std::int64_t>(g.batch) * g.out_height;
  }

  void run(const Run& run) const override {
    const int parts = parts_of(run, rows_, static_cast<std::int64_t>(output_bytes_ / sizeof(float)));
    run.parallel(parts, [&, this](int part, int) {
      kernels_.resize(task_, rows_ * part / parts, rows_ * (part + 1) / parts, run.at<const float>(input_),
                      run.at<float>(output_));
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(input_, input_bytes_, sizeof(float)), Span::writes(output_, output_bytes_, sizeof(float))};
  }
  const char* kind() const override { return kResize; }

 private:
  static void check(const std::vector<Interpolation>& places, int count, int extent) {
    if (places.size() != static_cast<std::size_t>(count))
      throw std::invalid_argument("resize_float32: one place per row and column is needed");
    for (const Interpolation& place : places)
      if (place.low < 0 || place.high < 0 || place.low >= extent || place.high >= extent)
        throw std::invalid_argument("resize_float32: a place lies outside of the image");
  }

  const ImageKernels& kernels_;
  Place input_, output_;
  std::vector<Interpolation> down_, along_;
  ResizeTask task_;
  std::size_t input_bytes_ = 0, output_bytes_ = 0;
  std::int64_t rows_ = 0;
};

}  // namespace

std::shared_ptr<Step> make_pool_float(const PoolFloatSpec& spec, Isa isa) {
  return std::make_shared<PoolStep>(spec, isa);
}

std::shared_ptr<Step> make_resize_float(const ResizeFloatSpec& spec, Isa isa) {
  return std::make_shared<ResizeStep>(spec, isa);
}

}  // namespace tpuconvert
