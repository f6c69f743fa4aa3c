#include "float32/norm/channels.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace tpuconvert {

namespace {

// Minimum number of elements per part: below, starting another thread costs more than it gains.
constexpr std::int64_t kPartElements = 1 << 12;

// Base class of steps over contiguous pixels.
class ChannelStep : public Step {
 public:
  ChannelStep(const Place& x, const Place& y, std::int64_t pixels, std::int64_t channels)
      : x_(x), y_(y), pixels_(pixels), channels_(channels) {
    std::int64_t elements = 0;
    if (pixels < 1 || channels < 1 || channels > INT32_MAX || __builtin_mul_overflow(pixels, channels, &elements) ||
        elements > INT64_MAX / 16)
      throw std::invalid_argument("channels_float32: an extent is not possible");
    bytes_ = static_cast<std::size_t>(elements) * sizeof(float);
  }

  void run(const Run& run) const override {
    const std::int64_t most = std::min({pixels_, pixels_ * channels_ / kPartElements + 1, std::int64_t{run.threads()} * 2});
    const int parts = run.threads() == 1 ? 1 : static_cast<int>(most);
    run.parallel(parts, [&, this](int part, int) {
      const std::int64_t begin = pixels_ * part / parts, end = pixels_ * (part + 1) / parts;
      for (std::int64_t pixel = begin; pixel < end; ++pixel)
        pixel_of(run.at<const float>(x_) + pixel * channels_, run.at<float>(y_) + pixel * channels_);
    });
  }

  std::vector<Span> spans() const override {
    return {Span::reads(x_, bytes_, sizeof(float)), Span::writes(y_, bytes_, sizeof(float))};
  }

 protected:
  virtual void pixel_of(const float* x, float* y) const = 0;
  std::int64_t channels() const { return channels_; }

 private:
  Place x_, y_;
  std::int64_t pixels_, channels_;
  std::size_t bytes_ = 0;
};

class BatchNormStep final : public ChannelStep {
 public:
  explicit BatchNormStep(const BatchNormSpec& spec)
      : ChannelStep(spec.x, spec.y, spec.pixels, static_cast<std::int64_t>(spec.mean.size())), spec_(spec) {
    if (spec.slope.size() != spec.mean.size() || spec.shift.size() != spec.mean.size())
      throw std::invalid_argument("channels_float32: the factors do not fit");
  }

  const char* kind() const override { return "batch_norm_float32"; }

 private:
  void pixel_of(const float* x, float* y) const override {
    const double* mean = spec_.mean.data();
    const double* slope = spec_.slope.data();
    const double* shift = spec_.shift.data();
    for (std::int64_t c = 0; c < channels(); ++c)
      y[c] = static_cast<float>((static_cast<double>(x[c]) - mean[c]) * slope[c] + shift[c]);
  }

  BatchNormSpec spec_;
};

class LrnStep final : public ChannelStep {
 public:
  explicit LrnStep(const LrnSpec& spec) : ChannelStep(spec.x, spec.y, spec.pixels, spec.channels), spec_(spec) {
    if (spec.size < 1) throw std::invalid_argument("channels_float32: a window without channels");
  }

  const char* kind() const override { return "lrn_float32"; }

 private:
  void pixel_of(const float* x, float* y) const override {
    const std::int64_t before = (spec_.size - 1) / 2, after = spec_.size / 2;
    const double factor = spec_.alpha / spec_.size;
    for (std::int64_t c = 0; c < channels(); ++c) {
      const std::int64_t last = std::min(c + after, channels() - 1);
      double sum = 0;
      for (std::int64_t k = std::max<std::int64_t>(c - before, 0); k <= last; ++k)
        sum += static_cast<double>(x[k]) * static_cast<double>(x[k]);
      const double base = spec_.bias + factor * sum;
      // 0.75 is the usual exponent, and two square roots are ten times faster than std::pow.
      const double power = spec_.beta == 0.75 ? std::sqrt(base) * std::sqrt(std::sqrt(base)) : std::pow(base, spec_.beta);
      y[c] = static_cast<float>(static_cast<double>(x[c]) / power);
    }
  }

  LrnSpec spec_;
};

}  // namespace

std::shared_ptr<Step> make_batch_norm(const BatchNormSpec& spec) { return std::make_shared<BatchNormStep>(spec); }

std::shared_ptr<Step> make_lrn(const LrnSpec& spec) { return std::make_shared<LrnStep>(spec); }

}  // namespace tpuconvert
